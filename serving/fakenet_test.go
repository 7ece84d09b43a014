package serving_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// pipes is a listener whose connections are in memory, so that a server runs in the fake
// time of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	over  chan struct{}
	close sync.Once

	dials atomic.Int64 // connections so far
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), over: make(chan struct{})} }

var errPipesClosed = errors.New("the listener is closed")

// dial opens a connection to the server.
func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	server, client := net.Pipe()
	select {
	case p.conns <- server:
		p.dials.Add(1)
		return client, nil
	case <-p.over:
		return nil, errPipesClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, errPipesClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.over) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// startFake is start within a bubble.
func startFake(t *testing.T, cfg serving.Config, h http.Handler, opts ...serving.DeploymentOption) *rig {
	t.Helper()
	return startFakeApp(t, cfg, serving.NewApp("a", serving.NewDeployment("D", h, opts...)))
}

func startFakeApp(t *testing.T, cfg serving.Config, app *serving.App) *rig {
	t.Helper()
	r := &rig{t: t, spans: newSpanLog(), access: newLineLog(), pipes: newPipes()}
	tp := provider(t, r.spans)
	s, err := serving.New(cfg, []*serving.App{app}, serving.WithTracing(tp),
		serving.WithLogger(slog.New(slog.NewJSONHandler(r.access, nil))))
	if err != nil {
		t.Fatal(err)
	}
	r.server = s
	s.ServeOn(r.pipes)
	transport := r.transport()
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), servingtest.Patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		_ = tp.Shutdown(ctx)
	})
	return r
}

// transport returns one that dials the server of startFake.
func (r *rig) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.pipes.dial(ctx) }}
}
