package serving_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// shutdown starts Shutdown, waits until the server drains, and returns a channel for the
// error of Shutdown.
func (r *rig) shutdown(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.server.Shutdown(ctx) }()
	servingtest.Await(r.t, "draining", r.server.Counter().Draining)
	return done
}

// TestDrain: health first, new requests refused, those in flight and in the
// queue finish.
func TestDrain(t *testing.T) {
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		_, _ = io.WriteString(w, "finished")
	}), serving.WithMaxOngoingRequests(1))
	idle := r.dial("GET /-/healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	kept := bufio.NewReader(idle)
	healthy, err := http.ReadResponse(kept, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = healthy.Body.Close() }()
	answers := make(chan answer, 2)
	for range 2 {
		go func() { answers <- r.get("/") }()
	}
	servingtest.Receive(t, "the first handler", entered)
	r.queued(1)
	done := r.shutdown(t.Context())
	if rest, err := io.ReadAll(kept); err != nil || string(rest) != textHealthy {
		t.Errorf("idle connection while draining: %q, %v: want EOF after the body", rest, err)
	}
	for _, path := range []string{"/-/healthz", "/-/routes", "/"} {
		got := r.get(path)
		if got.Status != 503 || got.Body != textDraining {
			t.Errorf("%s while draining: %d %q", path, got.Status, got.Body)
		}
	}
	refused := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if reply, err := io.ReadAll(refused); err != nil || !strings.Contains(string(reply), "Connection: close") {
		t.Errorf("refusal %q, %v: want Connection: close, and EOF", reply, err)
	}
	close(leave)
	for range 2 {
		if got := servingtest.Receive(t, "an answer", answers); got.Status != 200 || got.Body != "finished" {
			t.Errorf("request in flight: %d %q", got.Status, got.Body)
		}
	}
	if err := servingtest.Receive(t, "Shutdown", done); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if c, err := net.Dial("tcp", r.server.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("still accepts connections")
	}
	servingtest.Receive(t, "Done", r.server.Done())
	if err := r.server.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
}

// TestDrainIsBounded: when ctx ends, requests are cut off and Shutdown returns
// though a handler does not.
func TestDrainIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name    string
		begins  bool
		heeds   bool
		want    answer
		wantErr string
	}{
		{"deaf", false, false, answer{Status: 503, Body: textDraining},
			"drain: 1 requests cut off, 1 handlers still running: context canceled"},
		{"heeding", false, true, answer{Status: 503, Body: textDraining},
			"drain: 1 requests cut off, 0 handlers still running: context canceled"},
		{"streaming", true, true, answer{Status: 200, Body: "begin", Cut: true},
			"drain: 1 requests cut off, 0 handlers still running: context canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			defer close(leave)
			r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if tt.begins {
					writeBegin(w)
				}
				close(entered)
				if !tt.heeds {
					<-leave
					return
				}
				<-req.Context().Done()
				<-time.After(shortTimeout) // heeding takes a moment
				if cause := context.Cause(req.Context()); cause != serving.ErrShuttingDown {
					t.Errorf("cause %v, want ErrShuttingDown", cause)
				}
			}))
			r.wantShutdown = tt.wantErr
			answers := make(chan answer, 1)
			go func() { answers <- r.get("/") }()
			servingtest.Receive(t, "the handler", entered)
			ctx, cancel := context.WithCancel(t.Context())
			done := r.shutdown(ctx)
			cancel()
			got := servingtest.Receive(t, "the answer", answers)
			got.header = nil
			if got.Status != tt.want.Status || got.Body != tt.want.Body || got.Cut != tt.want.Cut {
				t.Errorf("client saw %+v, want %+v", got, tt.want)
			}
			err := servingtest.Receive(t, "Shutdown", done)
			if err == nil || err.Error() != tt.wantErr || !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown: %v, want %s", err, tt.wantErr)
			}
		})
	}
}

// TestShutdownWaitsForAbandonedHandler: the client was answered long ago.
func TestShutdownWaitsForAbandonedHandler(t *testing.T) {
	leave := make(chan struct{})
	r := start(t, serving.Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	checkStatus(t, r.get("/"), 408)
	done := r.shutdown(t.Context())
	select {
	case err := <-done:
		t.Errorf("Shutdown returned %v while a handler ran", err)
	case <-time.After(shortTimeout):
	}
	close(leave)
	if err := servingtest.Receive(t, "Shutdown", done); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// TestUnusedConnections: neither one that never sent a request nor one that is
// kept alive holds up the end, for which net/http alone would wait 5 s.
func TestUnusedConnections(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	silent := r.dial("")
	idle := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n") // accepted after the silent one
	if _, err := bufio.NewReader(idle).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("Shutdown took %v", took)
	}
	if _, err := silent.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the silent connection: %v, want EOF", err)
	}
}

// TestHalfSentBody: a client that owes the rest of a body that no handler wants
// has its answer, and does not hold up the end.
func TestHalfSentBody(t *testing.T) {
	for _, duplex := range []bool{false, true} { // if not, net/http wants the body before it replies
		r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusMethodNotAllowed)
			if duplex {
				return http.NewResponseController(w).EnableFullDuplex()
			}
			return nil
		}))
		c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
		r.access.take(t, "request", 1)
		began := time.Now()
		if err := servingtest.Receive(t, "Shutdown", r.shutdown(t.Context())); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		reply, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 405 ") {
			t.Errorf("full duplex %v: reply %q, %v", duplex, reply, err)
		}
	}
}

// TestDrainHTTP2: a stream in flight finishes, and the client learns (GOAWAY)
// to open no other on its connection.
func TestDrainHTTP2(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "finished")
	}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	r.client.Transport.(*http.Transport).Protocols = protocols
	answers := make(chan answer, 1)
	go func() { answers <- r.get("/") }()
	servingtest.Receive(t, "the handler", entered)
	done := r.shutdown(t.Context())
	checkStatus(t, r.get("/"), 503)
	close(leave)
	if got := servingtest.Receive(t, "the answer", answers); got.Status != 200 || got.Body != "finished" {
		t.Errorf("stream in flight: %d %q", got.Status, got.Body)
	}
	if err := servingtest.Receive(t, "Shutdown", done); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestStartAndShutdownOutOfOrder(t *testing.T) {
	apps := []*serving.App{serving.NewApp("a", serving.NewDeployment("D", http.NotFoundHandler()))}
	s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, apps)
	if err != nil {
		t.Fatal(err)
	}
	if s.Addr() != nil {
		t.Errorf("Addr before Start: %v", s.Addr())
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown before Start: %v", err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("Start after Shutdown: no error")
	}
}

func TestAddressTaken(t *testing.T) {
	r := start(t, serving.Config{}, http.NotFoundHandler())
	apps := []*serving.App{serving.NewApp("a", serving.NewDeployment("D", http.NotFoundHandler()))}
	s, err := serving.New(serving.Config{HTTPAddr: r.server.Addr().String()}, apps)
	if err != nil {
		t.Fatal(err)
	}
	want := "start server: listen tcp " + r.server.Addr().String() + ": bind: address already in use: " +
		"another process listens there; choose another port with SERVE_HTTP_PORT, with --http, or in the program"
	if err := s.Start(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Start: %v, want %s", err, want)
	}
}

// An address that no machine has is an error that names the variables.
func TestAddressThatCannotBeHad(t *testing.T) {
	const nowhere = "192.0.2.1:0" // TEST-NET-1
	for want, c := range map[string]serving.Config{
		"; check SERVE_HTTP_HOST and SERVE_HTTP_PORT": {HTTPAddr: nowhere},
		"; check SERVE_GRPC_HOST and SERVE_GRPC_PORT": {HTTPAddr: "127.0.0.1:0", GRPC: serving.GRPCConfig{Addr: nowhere}},
	} {
		s, err := serving.New(c, []*serving.App{testApp("a", testService{})})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("Start: %v, want %q at the end", err, want)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestMinDrainingPeriod: while health says 503 already, requests are served, and
// connections closed after them; then they are refused. An impatient stop does not
// wait.
func TestMinDrainingPeriod(t *testing.T) {
	r := start(t, serving.Config{MinDrainingPeriod: time.Hour}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.server.Shutdown(ctx) }()
	servingtest.Await(t, "health to tell", r.server.Counter().Leaving)
	if got := r.get("/-/healthz"); got.Status != http.StatusServiceUnavailable || got.Body != textDraining {
		t.Errorf("health: %d %q", got.Status, got.Body)
	}
	last := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	reply, err := io.ReadAll(last) // to the end: the connection is closed
	if text := string(reply); err != nil || !strings.Contains(text, "200 OK") || !strings.Contains(text, "Connection: close") || !strings.HasSuffix(text, "served") {
		t.Errorf("a request meanwhile: %v, %q", err, text)
	}
	select {
	case err := <-done:
		t.Errorf("Shutdown has returned: %v", err)
	default:
	}
	cancel()
	if err := servingtest.Receive(t, "the end of Shutdown", done); err != nil {
		t.Errorf("Shutdown: %v", err) // nothing was cut off
	}
}
