package serving_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

func TestWriteAfterReturn(t *testing.T) {
	kept := make(chan http.ResponseWriter, 1)
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { kept <- w }))
	checkStatus(t, r.get("/"), 200)
	w := servingtest.Receive(t, "the writer", kept)
	if _, err := w.Write([]byte("x")); err != http.ErrHandlerTimeout {
		t.Errorf("Write after the handler returned: %v, want ErrHandlerTimeout", err)
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now()); err != http.ErrHandlerTimeout {
		t.Errorf("SetWriteDeadline after the handler returned: %v, want ErrHandlerTimeout", err)
	}
}

func TestNonsenseStatus(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(42) }))
	if got := r.get("/"); got.Status != 500 {
		t.Errorf("status %d, want 500: WriteHeader(42) panics", got.Status)
	}
}

func TestGoexit(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		exitGoroutine()
	}), serving.WithMaxOngoingRequests(1))
	for range 2 { // the second finds the slot free
		checkStatus(t, r.get("/"), 500)
	}
}

// TestSlowReaderIsCut: a timeout ends a request though its handler is stuck in
// a write to a client that does not read.
func TestSlowReaderIsCut(t *testing.T) {
	wrote := make(chan error, 1)
	r := start(t, serving.Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
	if err := servingtest.Receive(t, "the write to fail", wrote); err == nil {
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
	r := start(t, serving.Config{RequestTimeout: roomyTimeout}, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, err := io.ReadAll(req.Body)
		read <- err
	}))
	c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this")
	reply, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 408 ") || !strings.Contains(string(reply), "Connection: close") {
		t.Errorf("reply %q, %v", reply, err)
	}
	if err := servingtest.Receive(t, "the read to end", read); err == nil {
		t.Error("the handler's read ended without an error")
	}
}

// TestNoRestOfABody: after the timeout of a request, the server does not take the rest of
// its body for the next request. With full duplex, net/http does not look for the end of
// the body before it replies.
func TestNoRestOfABody(t *testing.T) {
	t.Parallel() // it waits for timeouts
	for _, duplex := range []bool{false, true} {
		// The server closes a connection without the rest of a body after StallTimeout.
		r := start(t, serving.Config{RequestTimeout: roomyTimeout, StallTimeout: 2 * roomyTimeout}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
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
			reply, _ := io.ReadAll(c) // a late write may reset the connection
			if !strings.HasPrefix(string(reply), want) || strings.Count(string(reply), "HTTP/1.1") != 1 {
				t.Errorf("%s, full duplex %v: reply %q", path, duplex, reply)
			}
		}
	}
}

// TestSlotIsFreeWithTheResponse: a client that has its response finds the slot
// of its request free.
func TestSlotIsFreeWithTheResponse(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		serving.WithMaxOngoingRequests(1), serving.WithMaxQueuedRequests(0))
	for range 300 {
		checkStatus(t, r.get("/"), 200)
	}
}

func TestHandlerFuncElsewhere(t *testing.T) {
	rec := httptest.NewRecorder()
	serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errBoom }).
		ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if rec.Code != 500 || strings.Contains(rec.Body.String(), "boom") {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
}
