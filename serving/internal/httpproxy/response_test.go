package httpproxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// prepared is a response that is the handler's.
func prepared(ctx context.Context, w http.ResponseWriter, r *http.Request, requestID, prefix string) *response {
	x := &exchange{proxy: &proxy{}, r: r, route: &route{Route: Route{Prefix: prefix}}}
	x.identity.ID = requestID
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
			_, _ = p.x.resp.complete(nil)
		})
		<-s.entered
		cancel(cause.ErrRequestTimeout)
		if inTime {
			close(s.letGo)
		}
		after := p.take(cause.ErrRequestTimeout)
		handler.Wait()
		complete := after == whole || after == lost && p.why == nil
		reset := false
		select {
		case <-s.reset:
			reset = true
		default:
		}
		if complete == reset || reset && after != lost || !reset && (!inTime || p.status == 0) {
			t.Errorf("in time %t: phase %v, status %d, complete %t, the stream reset %t", inTime, after, p.status, complete, reset)
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
			_, ended = p.x.resp.complete(nil)
		})
		var replied bool
		wg.Go(func() {
			cancel(cause.ErrRequestTimeout)
			if replied = p.take(cause.ErrRequestTimeout) == lost && p.status == 0; replied {
				p.x.err = cause.ErrRequestTimeout
				p.x.reply(http.StatusRequestTimeout)
			}
		})
		wg.Wait()
		got := rec.Body.String()
		switch {
		case wrote != nil:
			if wrote != cause.ErrRequestTimeout || ended != cause.ErrRequestTimeout {
				t.Fatalf("handler's write: %v, its end: %v", wrote, ended)
			}
			// It was refused because ctx had ended: the proxy answers, if need
			// be after it has read what end gave.
			if replied && (rec.Code != 408 || !strings.Contains(got, "timed out")) || rec.Header().Get("X-Writer") != "" {
				t.Fatalf("client saw %d %q, headers %v", rec.Code, got, rec.Header())
			}
		case rec.Code != 200 || got != "handler" || replied:
			t.Fatalf("client saw %d %q, the proxy replied: %t", rec.Code, got, replied)
		}
	}
}

// TestNoBeginAfterTheEnd: once the context has ended, a handler that answers
// all the same is too late, whether or not the proxy has noticed yet.
func TestNoBeginAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	rec := httptest.NewRecorder()
	p := prepared(ctx, rec, httptest.NewRequest("GET", "/", nil), "id", "/")
	cancel(cause.ErrShuttingDown)
	p.WriteHeader(http.StatusTeapot)
	if _, err := p.Write([]byte("x")); err != cause.ErrShuttingDown {
		t.Errorf("Write: %v, want ErrShuttingDown", err)
	}
	if _, err := p.WriteString("x"); err != cause.ErrShuttingDown {
		t.Errorf("WriteString: %v, want ErrShuttingDown", err)
	}
	if err := p.FlushError(); err != cause.ErrShuttingDown {
		t.Errorf("FlushError: %v, want ErrShuttingDown", err)
	}
	if _, err := p.x.resp.complete(errors.New("a consequence")); err != cause.ErrShuttingDown {
		t.Errorf("returned: %v, want ErrShuttingDown", err)
	}
	if rec.Body.Len() > 0 || rec.Flushed {
		t.Errorf("the client saw %q", rec.Body)
	}
}

// TestHeadersAfterInformation: the headers of a 1xx response go, unless the handler keeps
// them. The headers that the proxy has set stay.
func TestHeadersAfterInformation(t *testing.T) {
	rec := httptest.NewRecorder()
	rec.Header().Set("Connection", "close")
	p := prepared(t.Context(), rec, httptest.NewRequest("GET", "/", nil), "id", "/")
	p.Header().Set("Link", "</style.css>")
	p.Header().Set("X-Kept", "yes")
	p.WriteHeader(http.StatusEarlyHints)
	p.Header().Del("Link")
	p.WriteHeader(http.StatusOK)
	want := http.Header{"Connection": {"close"}, "X-Kept": {"yes"}, "X-Request-Id": {"id"}}
	if !maps.EqualFunc(rec.Header(), want, slices.Equal) {
		t.Errorf("headers %v, want %v", rec.Header(), want)
	}
}

// TestRetiredConnection: the proxy has disturbed net/http's reading of the
// connection, which must not serve another request.
func TestRetiredConnection(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	r := start(t, time.Second, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "begin")
		_ = http.NewResponseController(w).Flush()
		<-leave
	}))
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	reply, err := io.ReadAll(r.dial(request))
	if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 200 OK") {
		t.Errorf("reply %q, %v: want 200, and EOF", reply, err)
	}
	r.awaitNoConnection()
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
	after := make(chan phase, 1)
	go func() { after <- p.take(cause.ErrRequestTimeout) }()
	if hurry := <-c.deadlines; hurry.IsZero() {
		t.Error("no deadline")
	}
	p.phase = whole
	p.mu.Unlock()
	if at := <-after; at != whole {
		t.Errorf("phase %v, want whole", at)
	}
	p.x.limitRest()
	if left := <-c.deadlines; !left.IsZero() {
		t.Errorf("deadline left at %v", left)
	}
}

// TestShutdownWithoutItsHandler: Shutdown waits for the handler of a request that
// has ended, but its connection is gone.
func TestShutdownWithoutItsHandler(t *testing.T) {
	leave := make(chan struct{})
	r := start(t, time.Second, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	c := r.dial("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if reply, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 408 ") {
		t.Errorf("reply %q, %v: want 408, and EOF", reply, err)
	}
	r.awaitNoConnection()
	if _, running := r.shared.Counter.Counts(); running != 1 {
		t.Errorf("%d handlers run", running)
	}
	if err := r.front.http.Shutdown(t.Context()); err != nil {
		t.Errorf("net/http: %v", err)
	}
	close(leave)
}

func TestEndsEvent(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "\n": false, "a\n": false, "a\n\n": true, "a\r\n": false, "a\r\n\r\n": true, "\r\n\n": true, "a\n\nb": false,
	} {
		if got := endsEvent(text, new(bool)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		var line, ended bool
		for _, b := range []byte(text) { // one by one
			ended = endsEvent([]byte{b}, &line)
		}
		if text != "a\r\n\r\n" && text != "\r\n\n" && ended != want {
			t.Errorf("%q, byte by byte: %v, want %v", text, ended, want)
		}
	}
}

func TestCloseCodes(t *testing.T) {
	for err, want := range map[error]int{
		cause.ErrShuttingDown: 1001, cause.ErrReplicaStopped: 1012, cause.ErrRequestTimeout: 1011, cause.ErrClientStalled: 1011, errors.New("boom"): 1011,
		&cause.QueueFullError{StatusCode: 429}: 1013, &cause.DeploymentUnavailableError{}: 1013,
	} {
		if got, _ := closeCodeOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// TestNonsenseStatusOfFullQueue: any status but 429 counts as 503.
func TestNonsenseStatusOfFullQueue(t *testing.T) {
	if got := statusOf(&cause.QueueFullError{StatusCode: 42}); got != http.StatusServiceUnavailable {
		t.Errorf("status %d for nonsense", got)
	}
}
