package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"
)

// httpFront is the HTTP side of a server: net/http's server, its listener and its
// connections.
type httpFront struct {
	*http.Server
	conns *conns
	ended chan struct{} // closed when serve has returned
}

func newHTTPFront(base context.Context, cfg Config, log *slog.Logger, h http.Handler) *httpFront {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	conns := newConns()
	return &httpFront{
		conns: conns,
		ended: make(chan struct{}),
		Server: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: cfg.ReadHeaderTimeout,
			IdleTimeout:       cfg.IdleTimeout,
			MaxHeaderBytes:    cfg.MaxHeaderBytes,
			ConnState:         conns.onState,
			ConnContext:       conns.onContext,
			ErrorLog:          slog.NewLogLogger(unbreakable{log.Handler()}, slog.LevelWarn),
			BaseContext:       func(net.Listener) context.Context { return base },
			Protocols:         protocols,
			HTTP2:             &http.HTTP2Config{WriteByteTimeout: max(0, cfg.StallTimeout)},
		},
	}
}

// listenHTTP listens at an address. The error says what to do.
func listenHTTP(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("start server: %w: another process listens there; choose another port with %s, or where the program sets its address", err, EnvHTTPPort)
	case err != nil:
		return nil, fmt.Errorf("start server: %w; check %s and %s", err, EnvHTTPHost, EnvHTTPPort)
	}
	return l, nil
}

// serve serves the connections of l until stop, and calls end: with the listener's error, or
// with nil after stop.
func (f *httpFront) serve(l net.Listener, end func(error)) {
	defer close(f.ended)
	err := f.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		end(nil)
		return
	}
	end(fmt.Errorf("serve %s: %w", l.Addr(), err))
}

// finishGrace is how long net/http may take to finish the responses whose handlers have
// returned: to see the end of a body that no handler wanted, and to write the last few
// KiB to the kernel.
const finishGrace = time.Second

// stop closes listener and connections, and waits for serve if it was started.
func (f *httpFront) stop(ctx context.Context, started bool) {
	f.conns.closeFresh()
	if !f.closes(ctx, finishGrace) {
		f.conns.hurry()
		if !f.closes(context.WithoutCancel(ctx), closeGrace) {
			_ = f.Close() // the connections that are left have had their time
		}
	}
	if started {
		<-f.ended
	}
}

// closes closes the listener and waits for the connections. It reports whether all were
// closed before ctx and grace had ended.
func (f *httpFront) closes(ctx context.Context, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return f.Shutdown(ctx) == nil
}
