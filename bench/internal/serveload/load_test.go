package serveload

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// connect opens n connections, and returns a function that runs an order on them.
func connect(t *testing.T, app, addr string, n int) func(o order) outcome {
	t.Helper()
	var clients []client
	for range n {
		c, err := dial(t.Context(), app, addr, 4)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return func(o order) outcome { return runOrder(clients, newClocks(n), o, measure.NewHistogram()) }
}

// checkCounts runs several orders on the same connections, and checks that client and
// server count the same requests.
func checkCounts(t *testing.T, app, addr string, seen *atomic.Uint64) {
	t.Helper()
	seen.Store(0)
	run := connect(t, app, addr, 3)
	answered := uint64(0)
	for range 3 {
		out := run(order{For: 10 * time.Millisecond})
		if out.Failed > 0 {
			t.Fatalf("%d failed: %s", out.Failed, out.Fault)
		}
		answered += out.Answered
	}
	if answered == 0 || answered != seen.Load() {
		t.Errorf("%d were answered, the server saw %d", answered, seen.Load())
	}
}

func TestLoadOfHTTP(t *testing.T) {
	var seen atomic.Uint64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		hello(w, r)
	}))
	defer s.Close()
	checkCounts(t, appHello, s.Listener.Addr().String(), &seen)
}

func TestLoadOfGRPC(t *testing.T) {
	var seen atomic.Uint64
	backend := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		seen.Add(1)
		return handler(ctx, in)
	}))
	testpb.RegisterTestServiceServer(backend, echo{})
	s, err := serveGRPC("127.0.0.1:0", backend)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = s.stop() }()
	checkCounts(t, appEcho, s.addr, &seen)
}

func TestLoadReportsWrongAnswers(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		`status 500 and "no"`:     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); _, _ = w.Write([]byte("no")) },
		`status 200 and "hullo"`:  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hullo")) },
		`status 200 and "hello!"`: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello!")) },
		"without a length":        func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
		"EOF":                     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for want, answer := range answers {
		t.Run(want, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.Close()
			out := connect(t, appHello, s.Listener.Addr().String(), 1)(order{})
			if out.Answered > 0 || out.Failed == 0 || !strings.Contains(out.Fault, want) {
				t.Errorf("%+v, want no answer and a fault with %q", out, want)
			}
		})
	}
	t.Run("gRPC", func(t *testing.T) {
		s, err := serveGRPC("127.0.0.1:0", grpc.NewServer()) // without the service
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = s.stop() }()
		out := connect(t, appEcho, s.addr, 1)(order{})
		if want := `status "12"`; out.Answered > 0 || !strings.Contains(out.Fault, want) {
			t.Errorf("%+v, want no answer and a fault with %q", out, want)
		}
	})
}

// TestLoadEndsWithItsConnections checks that a cut connection is an error.
func TestLoadEndsWithItsConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	for _, app := range []string{appHello, appEcho} {
		out := connect(t, app, l.Addr().String(), 2)(order{For: time.Minute})
		if out.Failed != 2 || out.Fault == "" {
			t.Errorf("%s: %+v, want both connections to have failed", app, out)
		}
	}
}

// TestLateClientSendsOneRequest checks a client that begins after the end.
func TestLateClientSendsOneRequest(t *testing.T) {
	c := &clock{end: time.Now()}
	if _, more := c.begin(); !more {
		t.Error("there was none")
	}
	if _, more := c.begin(); more {
		t.Error("there was one more")
	}
}
