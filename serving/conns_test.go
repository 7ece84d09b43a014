package serving

import (
	"net/http"
	"runtime"
	"sync"
	"testing"
	"weak"
)

// TestEndedStreamsHoldNoMemory: nothing of a connection of HTTP/2 is left when it has
// ended, though each of its streams had a stall limit.
func TestEndedStreamsHoldNoMemory(t *testing.T) {
	conns := make(chan weak.Pointer[connection], 1)
	r := start(t, Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case conns <- weak.Make(connectionOf(req)):
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
	conn := <-conns
	r.client.CloseIdleConnections()
	await(t, "the connection to be collected", func() bool {
		runtime.GC()
		return conn.Value() == nil
	})
}
