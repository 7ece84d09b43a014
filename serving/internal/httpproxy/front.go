package httpproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/inflight"
)

// Front is the HTTP side of a server: net/http's server, which passes requests to the
// proxy, and the open connections. Its methods are safe for concurrent use.
type Front struct {
	http    *http.Server
	conns   *conns
	serving sync.WaitGroup // waits for the goroutines of Serve
}

// New returns a Front with a proxy. It accepts no connections before Serve.
func New(c Config) *Front {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	conns := newConns()
	return &Front{
		conns: conns,
		http: &http.Server{
			Handler:           newProxy(c),
			ReadHeaderTimeout: c.ReadHeaderTimeout,
			IdleTimeout:       c.IdleTimeout,
			MaxHeaderBytes:    c.MaxHeaderBytes,
			ConnState:         conns.onState,
			ConnContext:       conns.onContext,
			ErrorLog:          slog.NewLogLogger(accesslog.Unbreakable{Handler: c.Shared.Log.Handler()}, slog.LevelWarn),
			BaseContext:       func(net.Listener) context.Context { return c.Shared.Base },
			Protocols:         protocols,
			HTTP2:             &http.HTTP2Config{WriteByteTimeout: max(0, c.StallTimeout)},
		},
	}
}

// Serve serves the connections of l in the background. When that ends, it calls end: with
// nil after Stop, otherwise with the error of l.
func (f *Front) Serve(l net.Listener, end func(error)) {
	f.serving.Go(func() {
		err := f.http.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			end(nil)
			return
		}
		end(fmt.Errorf("serve %s: %w", l.Addr(), err))
	})
}

// Drain closes each connection after its current response, and idle connections at once. Call
// it only when the proxy refuses requests, because net/http may drop a request that arrives
// on an idle connection in that moment.
func (f *Front) Drain() { f.http.SetKeepAlivesEnabled(false) }

// finishGrace bounds the time in which net/http finishes responses after their handlers
// have returned. In that time net/http reads the end of an unread request body, and writes
// the last few KiB of a response to the kernel.
const finishGrace = time.Second

// Stop closes the listener and the connections, and waits until Serve has called end. If ctx
// ends, or the connections are not closed after finishGrace, it sets short deadlines on them.
func (f *Front) Stop(ctx context.Context) {
	f.conns.closeFresh() // closes the connections on which no request has arrived
	if !f.closeWithin(ctx, finishGrace) {
		f.conns.hurry() // sets the deadlines
		if !f.closeWithin(context.WithoutCancel(ctx), inflight.CloseGrace) {
			_ = f.http.Close() // the deadlines of the remaining connections have passed
		}
	}
	f.serving.Wait()
}

// closeWithin closes the listener, and waits until the connections are closed. It returns false
// if ctx ends or the time grace passes before that.
func (f *Front) closeWithin(ctx context.Context, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return f.http.Shutdown(ctx) == nil
}
