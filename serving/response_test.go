package serving

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// prepared is a response that is the handler's.
func prepared(ctx context.Context, w http.ResponseWriter, r *http.Request, requestID, prefix string) *response {
	x := &exchange{proxy: &proxy{}, r: r, route: &route{prefix: prefix}}
	x.request.ID = requestID
	x.ctx = ctx
	x.prepare(w, r, nil)
	return &x.resp
}

// stuckStream is a stream of HTTP/2 whose writes wait for a deadline to pass, or to
// be let go.
type stuckStream struct {
	*httptest.ResponseRecorder
	entered, letGo, reset chan struct{}
}

func (s *stuckStream) Write(b []byte) (int, error) {
	close(s.entered)
	select {
	case <-s.letGo:
	case <-s.reset:
	}
	return s.ResponseRecorder.Write(b)
}

func (*stuckStream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is as net/http's: one that has passed resets the stream.
func (s *stuckStream) SetWriteDeadline(at time.Time) error {
	time.AfterFunc(time.Until(at), func() { close(s.reset) })
	return nil
}

// TestHurriedStream: where the stream is reset, as a write takes too long, the
// handler has not answered, though it then writes all that it has declared.
func TestHurriedStream(t *testing.T) {
	for _, inTime := range []bool{true, false} {
		s := &stuckStream{httptest.NewRecorder(), make(chan struct{}), make(chan struct{}), make(chan struct{})}
		req := httptest.NewRequest("GET", "/", nil)
		req.ProtoMajor = 2
		ctx, cancel := context.WithCancelCause(t.Context())
		p := prepared(ctx, s, req, "id", "/")
		p.Header().Set("Content-Length", "1")
		var handler sync.WaitGroup
		handler.Go(func() {
			_, _ = p.Write([]byte("x"))
			_, _ = p.x.returned(nil)
		})
		<-s.entered
		cancel(ErrRequestTimeout)
		if inTime {
			close(s.letGo)
		}
		found, complete := p.x.take(ErrRequestTimeout)
		handler.Wait()
		reset := false
		select {
		case <-s.reset:
			reset = true
		default:
		}
		if complete == reset || reset && found != begun || !reset && (!inTime || found == open) {
			t.Errorf("in time %t: found %v, complete %t, the stream reset %t", inTime, found, complete, reset)
		}
	}
}

// TestOneWriterConcurrentSafe lets handler and proxy race for the response:
// whoever gets it, the client has one whole answer.
func TestOneWriterConcurrentSafe(t *testing.T) {
	for range 500 {
		ctx, cancel := context.WithCancelCause(t.Context())
		rec := httptest.NewRecorder()
		p := prepared(ctx, rec, httptest.NewRequest("GET", "/", nil), "id", "/")
		var wg sync.WaitGroup
		var wrote, ended error
		wg.Go(func() {
			p.Header().Set("X-Writer", "handler")
			_, wrote = io.WriteString(p, "handler")
			_, ended = p.x.returned(nil)
		})
		var found phase
		wg.Go(func() {
			cancel(ErrRequestTimeout)
			if found, _ = p.x.take(ErrRequestTimeout); found == open {
				p.x.err = ErrRequestTimeout
				p.x.reply(http.StatusRequestTimeout)
			}
		})
		wg.Wait()
		got := rec.Body.String()
		switch {
		case wrote != nil:
			if wrote != ErrRequestTimeout || ended != ErrRequestTimeout {
				t.Fatalf("handler's write: %v, its end: %v", wrote, ended)
			}
			// It was refused because ctx had ended: the proxy answers, if need
			// be after it has read what end gave.
			if found == open && (rec.Code != 408 || !strings.Contains(got, "timed out")) || rec.Header().Get("X-Writer") != "" {
				t.Fatalf("client saw %d %q, headers %v", rec.Code, got, rec.Header())
			}
		case rec.Code != 200 || got != "handler" || found == open:
			t.Fatalf("client saw %d %q, the proxy found it %v", rec.Code, got, found)
		}
	}
}

// TestNoBeginAfterTheEnd: once the context has ended, a handler that answers
// all the same is too late, whether or not the proxy has noticed yet.
func TestNoBeginAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	rec := httptest.NewRecorder()
	p := prepared(ctx, rec, httptest.NewRequest("GET", "/", nil), "id", "/")
	cancel(ErrShuttingDown)
	p.WriteHeader(http.StatusTeapot)
	if _, err := p.Write([]byte("x")); err != ErrShuttingDown {
		t.Errorf("Write: %v, want ErrShuttingDown", err)
	}
	if _, err := p.WriteString("x"); err != ErrShuttingDown {
		t.Errorf("WriteString: %v, want ErrShuttingDown", err)
	}
	if err := p.FlushError(); err != ErrShuttingDown {
		t.Errorf("FlushError: %v, want ErrShuttingDown", err)
	}
	if _, err := p.x.returned(errors.New("a consequence")); err != ErrShuttingDown {
		t.Errorf("returned: %v, want ErrShuttingDown", err)
	}
	if rec.Body.Len() > 0 || rec.Flushed {
		t.Errorf("the client saw %q", rec.Body)
	}
}

func TestWriteAfterReturn(t *testing.T) {
	kept := make(chan http.ResponseWriter, 1)
	r := start(t, Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { kept <- w }))
	checkStatus(t, r.get("/"), 200)
	w := receive(t, "the writer", kept)
	if _, err := w.Write([]byte("x")); err != http.ErrHandlerTimeout {
		t.Errorf("Write after the handler returned: %v, want ErrHandlerTimeout", err)
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now()); err != http.ErrHandlerTimeout {
		t.Errorf("SetWriteDeadline after the handler returned: %v, want ErrHandlerTimeout", err)
	}
}

func TestNonsenseStatus(t *testing.T) {
	r := start(t, Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(42) }))
	if got := r.get("/"); got.Status != 500 {
		t.Errorf("status %d, want 500: WriteHeader(42) panics", got.Status)
	}
}

func TestGoexit(t *testing.T) {
	r := start(t, Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		exitGoroutine()
	}), WithMaxOngoingRequests(1))
	for range 2 { // the second finds the slot free
		checkStatus(t, r.get("/"), 500)
	}
}

// TestSlowReaderIsCut: a timeout ends a request though its handler is stuck in
// a write to a client that does not read.
func TestSlowReaderIsCut(t *testing.T) {
	wrote := make(chan error, 1)
	r := start(t, Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				wrote <- err
				return
			}
		}
	}))
	c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = c.(*net.TCPConn).SetReadBuffer(1 << 10) // or the kernel takes longer to fill
	if err := receive(t, "the write to fail", wrote); err == nil {
		t.Error("no error")
	}
	for _, s := range r.spans.take(t, 3) {
		if strings.HasPrefix(s.Name(), "proxy") && digest(s) != "proxy_http_request ERROR() sc=200 event("+typeTimeout+" True)" {
			t.Errorf("proxy span %s", digest(s))
		}
	}
}

// TestStalledBody: at a timeout the client gets its 408, and a handler stuck in
// reading the body is set free.
func TestStalledBody(t *testing.T) {
	read := make(chan error, 1)
	r := start(t, Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, err := io.ReadAll(req.Body)
		read <- err
	}))
	c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this")
	reply, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 408 ") || !strings.Contains(string(reply), "Connection: close") {
		t.Errorf("reply %q, %v", reply, err)
	}
	if err := receive(t, "the read to end", read); err == nil {
		t.Error("the handler's read ended without an error")
	}
}

// TestNoRestOfABody: what a client sends of a body after its request has timed
// out is not taken for the connection's next request. Full duplex is the hard
// case: otherwise net/http looks for the end of the body before it replies.
func TestNoRestOfABody(t *testing.T) {
	for _, duplex := range []bool{false, true} {
		r := start(t, Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if duplex {
				if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
					t.Error(err)
				}
			}
			if req.URL.Path == "/complete" {
				w.Header().Set("Content-Length", "5")
				writeBegin(w)
			}
			for {
				if _, err := req.Body.Read(make([]byte, 1)); err != nil {
					return
				}
			}
		}))
		for path, want := range map[string]string{"/complete": "HTTP/1.1 200 OK", "/none": "HTTP/1.1 408 Request Timeout"} {
			c := r.dial("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nthe beginning")
			r.spans.take(t, 3) // the request is over
			_, _ = io.WriteString(c, "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
			reply, _ := io.ReadAll(c) // what it sent too late may earn it a reset
			if !strings.HasPrefix(string(reply), want) || strings.Count(string(reply), "HTTP/1.1") != 1 {
				t.Errorf("%s, full duplex %v: reply %q", path, duplex, reply)
			}
		}
	}
}

// TestRetiredConnection: the proxy has disturbed net/http's reading of the
// connection, which must not serve another request.
func TestRetiredConnection(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	r := start(t, Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		writeBegin(w)
		<-leave
	}))
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	reply, err := io.ReadAll(r.dial(request))
	if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 200 OK") {
		t.Errorf("reply %q, %v: want 200, and EOF", reply, err)
	}
	await(t, "the connection to be forgotten", func() bool {
		r.server.http.conns.mu.Lock()
		defer r.server.http.conns.mu.Unlock()
		return len(r.server.http.conns.open) == 0
	})
}

// stuckConn is a connection whose writes take until a deadline is set.
type stuckConn struct {
	*httptest.ResponseRecorder
	deadlines chan time.Time
}

func (c *stuckConn) SetWriteDeadline(t time.Time) error {
	c.deadlines <- t
	return nil
}

// TestDeadlineIsTakenBack: a write is hurried, ends in time after all, and the
// connection has no deadline for its next request.
func TestDeadlineIsTakenBack(t *testing.T) {
	c := &stuckConn{httptest.NewRecorder(), make(chan time.Time, 2)}
	p := prepared(t.Context(), c, httptest.NewRequest("GET", "/", nil), "id", "/")
	p.mu.Lock() // as a write does
	found := make(chan phase, 1)
	go func() {
		f, _ := p.x.take(ErrRequestTimeout)
		found <- f
	}()
	if hurry := receive(t, "the deadline", c.deadlines); hurry.IsZero() {
		t.Error("no deadline")
	}
	p.phase = ended
	p.mu.Unlock()
	if f := receive(t, "take", found); f != ended {
		t.Errorf("found %v, want ended", f)
	}
	p.x.finish()
	if after := receive(t, "the reset", c.deadlines); !after.IsZero() {
		t.Errorf("deadline left at %v", after)
	}
}

// TestSlotIsFreeWithTheResponse: a client that has its response finds the slot
// of its request free.
func TestSlotIsFreeWithTheResponse(t *testing.T) {
	r := start(t, Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		WithMaxOngoingRequests(1), WithMaxQueuedRequests(0))
	for range 300 {
		checkStatus(t, r.get("/"), 200)
	}
}

func TestHandlerFuncElsewhere(t *testing.T) {
	rec := httptest.NewRecorder()
	HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errBoom }).
		ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if rec.Code != 500 || strings.Contains(rec.Body.String(), "boom") {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
}
