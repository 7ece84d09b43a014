package serving_test

import (
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// TestEndedStreamsHoldNoMemory: nothing of a connection of HTTP/2 is left when it has
// ended, though each of its streams had a stall limit.
func TestEndedStreamsHoldNoMemory(t *testing.T) {
	addrs := make(chan weak.Pointer[net.TCPAddr], 1) // the connection holds its address
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case addrs <- weak.Make(req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)):
		default:
		}
		_, _ = w.Write([]byte("some"))
	}))
	r.speakHTTP2()
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for range 100 {
				checkStatus(t, r.get("/"), http.StatusOK)
			}
		})
	}
	clients.Wait()
	addr := <-addrs
	r.client.CloseIdleConnections()
	servingtest.Await(t, "the connection to be collected", func() bool {
		runtime.GC()
		return addr.Value() == nil
	})
}
