package serving_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

// halfClosed sends a request, closes the client's side, and returns the status line and
// the body of what comes back.
func (r *rig) halfClosed(request string) string {
	r.t.Helper()
	c := r.dial(request)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		r.t.Error(err)
	}
	reply, err := io.ReadAll(c)
	if err != nil {
		r.t.Error(err)
	}
	line, rest, _ := strings.Cut(string(reply), "\r\n")
	_, body, _ := strings.Cut(rest, "\r\n\r\n")
	return strings.TrimSpace(line[min(len(line), len("HTTP/1.1")):] + " " + body)
}

// halfClosing are requests of clients that close their side after them.
var halfClosing = map[string]string{
	"GET":                        "GET %s HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET and close":              "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	"GET by HTTP/1.0":            "GET %s HTTP/1.0\r\n\r\n",
	"POST":                       "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
	"POST by HTTP/1.0":           "POST %s HTTP/1.0\r\nContent-Length: 4\r\n\r\nbody",
	"POST whose body is chunked": "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
}

// TestHalfClosedClient has its answer, as from net/http, however fast the handler is.
func TestHalfClosedClient(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Errorf("body: %v", err)
		}
		if req.URL.Path == "/slow" {
			<-req.Context().Done() // the handler hears of it
			if err := req.Context().Err(); err != context.Canceled {
				t.Errorf("cause %v", err)
			}
		}
		w.Header().Set("Content-Length", "9")
		_, _ = fmt.Fprintf(w, "%-9s", "you: "+string(body))
	}))
	requests := 0
	for name, request := range halfClosing {
		want := "200 OK you:"
		if strings.HasPrefix(name, "POST") {
			want = "200 OK you: body"
		}
		for i := range 60 {
			path := "/fast"
			if i%20 == 0 {
				path = "/slow"
			}
			requests++
			if got := r.halfClosed(fmt.Sprintf(request, path)); got != want {
				t.Fatalf("%s %s: client saw %q, want %q", name, path, got, want)
			}
		}
	}
	for _, line := range r.access.take(t, "request", requests) {
		if line["status"] != 200.0 || line["error"] != nil {
			t.Fatalf("log line %v", line)
		}
	}
	for _, d := range digests(r.spans.take(t, 3*requests)) {
		if strings.Contains(d, "event(") {
			t.Fatalf("span %s", d)
		}
	}
}

// TestHalfClosedStream: what is streamed after the client closed its side arrives, and
// the response ends as it should.
func TestHalfClosedStream(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		writeBegin(w)
		<-req.Context().Done()
		for range 3 {
			_, _ = io.WriteString(w, " more")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	const want = "200 OK 5\r\nbegin\r\n5\r\n more\r\n5\r\n more\r\n5\r\n more\r\n0"
	if got := r.halfClosed("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); got != want {
		t.Errorf("client saw %q, want %q", got, want)
	}
	got := digests(r.spans.take(t, 3))
	if diff := cmp.Diff([]string{proxyOK, routerPlain, replica200}, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// TestHalfClosedWithoutAnAnswer: where the handler gives up, or fails, log and spans tell
// of a client that has left, and the client learns that nothing comes.
func TestHalfClosedWithoutAnAnswer(t *testing.T) {
	const gaveUp = "503 Service Unavailable Request id-1 was given up because its client has closed the connection."
	for name, tt := range map[string]struct {
		handler serving.HandlerFunc
		want    string
	}{
		"returns": {func(http.ResponseWriter, *http.Request) error { return nil }, "200 OK"}, // net/http's own
		"fails":   {func(_ http.ResponseWriter, r *http.Request) error { return r.Context().Err() }, gaveUp},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, serving.Config{}, serving.HandlerFunc(func(w http.ResponseWriter, req *http.Request) error {
				<-req.Context().Done()
				return tt.handler(w, req)
			}))
			if got := r.halfClosed("GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: id-1\r\n\r\n"); got != tt.want {
				t.Errorf("client saw %q, want %q", got, tt.want)
			}
			if line := r.access.take(t, "request", 1)[0]; line["status"] != 499.0 || line["error"] != serving.ErrClientGone.Error() {
				t.Errorf("log line %v", line)
			}
			want := []string{
				"proxy_http_request ERROR() sc=499 event(" + typeCanceled + " True)", routerPlain,
				"replica_handle_request event(" + typeCanceled + " False)",
			}
			if diff := cmp.Diff(want, digests(r.spans.take(t, 3))); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHalfClosedIsBounded: the proxy waits for a handler that does not heed its context
// no longer than the request's timeout, or the server's.
func TestHalfClosedIsBounded(t *testing.T) {
	t.Run("timeout", func(t *testing.T) {
		leave := make(chan struct{})
		defer close(leave)
		r := start(t, serving.Config{RequestTimeout: shortTimeout}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
		const want = "408 Request Timeout Request id-1 timed out after 0.05s."
		if got := r.halfClosed("GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: id-1\r\n\r\n"); got != want {
			t.Errorf("client saw %q, want %q", got, want)
		}
	})
	t.Run("shutdown", func(t *testing.T) {
		entered, leave := make(chan struct{}), make(chan struct{})
		r := start(t, serving.Config{}, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			<-req.Context().Done()
			close(entered)
			<-leave
		}))
		defer close(leave)
		saw := make(chan string, 1)
		go func() { saw <- r.halfClosed("GET / HTTP/1.1\r\nHost: x\r\n\r\n") }()
		servingtest.Receive(t, "the handler", entered)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.wantShutdown = "drain: 1 requests cut off, 1 handlers still running: context canceled"
		if err := r.server.Shutdown(ctx); err == nil || err.Error() != r.wantShutdown {
			t.Errorf("Shutdown: %v", err)
		}
		if got := servingtest.Receive(t, "the answer", saw); got != "503 Service Unavailable "+textDraining {
			t.Errorf("client saw %q", got)
		}
	})
}

// TestConnect: a request for a tunnel reaches the app at "/", with the path that net/http
// gives it, which is none.
func TestConnect(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %q %s", r.Method, r.URL.Path, r.Host)
	})
	const request = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"
	r := start(t, serving.Config{}, h)
	if got, want := r.halfClosed(request), `200 OK CONNECT "" example.org:443`; got != want {
		t.Errorf("client saw %q, want %q", got, want)
	}
	if name := r.spans.take(t, 3)[2].Name(); name != "proxy_http_request D CONNECT /" {
		t.Errorf("span %q", name)
	}
	elsewhere := startApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", h), serving.WithRoutePrefix("/a")))
	if got := elsewhere.halfClosed(request); !strings.HasPrefix(got, "404 Not Found ") {
		t.Errorf("without an app at /, client saw %q", got)
	}
}
