package serveload

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// connect opens connections for 16 requests at a time.
func connect(t *testing.T, app, addr string) *load {
	t.Helper()
	l, err := dial(t.Context(), app, addr, 2*streams)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// TestLoadCounts runs several loads on the same connections, and checks that client and
// server count the same requests.
func TestLoadCounts(t *testing.T) {
	var seen atomic.Uint64
	web, err := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		hello(w, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	backend := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		seen.Add(1)
		return handler(ctx, in)
	}))
	testpb.RegisterTestServiceServer(backend, echo{})
	rpc, err := serveGRPC(backend)
	if err != nil {
		t.Fatal(err)
	}
	for app, s := range map[string]*server{appHello: web, appEcho: rpc} {
		seen.Store(0)
		l := connect(t, app, s.addr)
		all := uint64(0)
		for _, length := range []time.Duration{0, 10 * time.Millisecond, 10 * time.Millisecond} {
			answered, took, err := l.run(length)
			if err != nil || took < length {
				t.Fatalf("%s: %v, took %v", app, err, took)
			}
			all += answered
		}
		if all < 3*2*streams || all != seen.Load() {
			t.Errorf("%s: %d were answered, the server saw %d", app, all, seen.Load())
		}
		if _, err := s.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestLoadReportsWrongAnswers(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		`status 500 and "no"`:     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); _, _ = w.Write([]byte("no")) },
		`status 200 and "hullo"`:  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hullo")) },
		`status 200 and "hello!"`: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello!")) },
		"EOF":                     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		s := httptest.NewServer(answer)
		if answered, _, err := connect(t, appHello, s.Listener.Addr().String()).run(0); answered > 0 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d answered, error %v, want no answer and %q", answered, err, want)
		}
		s.Close()
	}
	s, err := serveGRPC(grpc.NewServer()) // without the service
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = s.stop() }()
	if answered, _, err := connect(t, appEcho, s.addr).run(0); answered > 0 || err == nil || !strings.Contains(err.Error(), "Unimplemented") {
		t.Errorf("%d answered, error %v, want no answer", answered, err)
	}
}
