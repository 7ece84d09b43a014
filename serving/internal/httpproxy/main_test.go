package httpproxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/test/servingtest"
	"github.com/servetrace/servetrace/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Front that listens, with a handler at "/".
type rig struct {
	t      testing.TB
	front  *Front
	shared *router.Shared
	addr   string
}

func start(t testing.TB, timeout time.Duration, h http.Handler) *rig {
	t.Helper()
	return startTraced(t, spans.New(tracing.Off()), timeout, h)
}

func startTraced(t testing.TB, tracer *spans.Tracer, timeout time.Duration, h http.Handler) *rig {
	t.Helper()
	base, cut := context.WithCancel(context.Background())
	s := &router.Shared{
		Base:    base,
		Counter: inflight.NewCounter(),
		Workers: new(inflight.Workers),
		Metrics: metrics.New(),
		Tracer:  tracer,
		Log:     accesslog.Log{Logger: slog.New(slog.DiscardHandler)},
	}
	d := router.New(s, router.Config{App: "a", Name: "D", Settings: router.Settings{Replicas: 1, MaxOngoing: 5, MaxQueued: -1, WaitLoop: time.Hour, StopTimeout: time.Hour}})
	d.Replicas.Start()
	r := &rig{t: t, shared: s, front: New(Config{
		Shared:       s,
		Component:    s.Tracer.NewProxy(),
		Routes:       []Route{{Deployment: d, Handler: h, Prefix: "/", Timeout: timeout}},
		StallTimeout: time.Minute,
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.front.Serve(l, func(error) {})
	t.Cleanup(func() {
		s.Counter.Drain()
		<-s.Counter.Idle()
		d.Replicas.Stop()
		if err := d.Replicas.Wait(context.Background(), context.Background()); err != nil {
			t.Error(err)
		}
		r.front.Stop(context.Background())
		s.Workers.Close()
		cut()
	})
	return r
}

// dial opens a connection and sends the text.
func (r *rig) dial(text string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// awaitNoConnection waits until the server has no connection.
func (r *rig) awaitNoConnection() {
	r.t.Helper()
	servingtest.Await(r.t, "the end of all connections", func() bool {
		r.front.conns.mu.Lock()
		defer r.front.conns.mu.Unlock()
		return len(r.front.conns.open) == 0
	})
}
