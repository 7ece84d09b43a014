package serveload

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// connections is the number of requests that are in flight.
const connections = 32

// streams is the number of concurrent calls on a gRPC connection.
const streams = 8

// load sends requests to a server. Its connections stay open between two runs, without
// a request in flight.
type load struct {
	// calls each send a request and check the answer. After an error they are unusable.
	calls []func() error
	close func()
}

// dial opens n connections, or n concurrent calls with gRPC.
func dial(ctx context.Context, app, addr string, n int) (*load, error) {
	var open []io.Closer
	l := &load{close: func() {
		for _, c := range open {
			_ = c.Close() // the load is over
		}
	}}
	for len(l.calls) < n {
		calls, conn, err := dialers[app](ctx, addr)
		if err != nil {
			l.close()
			return nil, err
		}
		open, l.calls = append(open, conn), append(l.calls, calls...)
	}
	return l, nil
}

// run sends requests until the time is over, each connection a request after each
// answer, and at least one. It returns after the last answer.
func (l *load) run(length time.Duration) (answered uint64, took time.Duration, err error) {
	var all sync.WaitGroup
	var count atomic.Uint64
	faults := make(chan error, len(l.calls))
	began := time.Now()
	for _, call := range l.calls {
		all.Go(func() {
			for n := uint64(1); ; n++ {
				if err := call(); err != nil {
					faults <- err
					return
				}
				if time.Since(began) >= length {
					count.Add(n)
					return
				}
			}
		})
	}
	all.Wait()
	close(faults)
	return count.Load(), time.Since(began), <-faults // nil without a fault
}

// dialers open a connection to an application.
var dialers = map[string]func(ctx context.Context, addr string) (calls []func() error, conn io.Closer, err error){
	appHello: dialHTTP, appEcho: dialGRPC,
}

// dialHTTP opens a connection of HTTP/1.1. It writes the same bytes again and again, so
// that its cost is mostly the kernel's.
func dialHTTP(ctx context.Context, addr string) ([]func() error, io.Closer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	request := fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nUser-Agent: servetrace-bench\r\n\r\n", addr)
	in, body := bufio.NewReader(conn), new(bytes.Buffer)
	return []func() error{func() error {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		body.Reset()
		_, err = body.ReadFrom(answer.Body)
		if err == nil && (answer.StatusCode != http.StatusOK || body.String() != helloBody) {
			err = fmt.Errorf("answered with status %d and %q", answer.StatusCode, body)
		}
		return err
	}}, conn, nil
}

// dialGRPC opens a connection of gRPC, for several calls at a time.
func dialGRPC(ctx context.Context, addr string) ([]func() error, io.Closer, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	client, request := testpb.NewTestServiceClient(conn), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: echoPayload}}
	var calls []func() error
	for range streams {
		calls = append(calls, func() error {
			answer, err := client.UnaryCall(ctx, request)
			if err == nil && !bytes.Equal(answer.GetPayload().GetBody(), echoPayload) {
				err = fmt.Errorf("answered with %q", answer)
			}
			return err
		})
	}
	return calls, conn, nil
}
