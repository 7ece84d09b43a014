package serving_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving"
)

// TestRequestIDEverywhere: the same id in response, spans, log and handler.
func TestRequestIDEverywhere(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-ID", "the handler's own")
	}))
	got := r.get("/", "x-request-id", "client-7")
	if ids := got.header.Values("X-Request-ID"); len(ids) != 1 || ids[0] != "client-7" {
		t.Errorf("response has X-Request-ID %q", ids)
	}
	for _, s := range r.spans.take(t, 3) {
		for _, key := range []string{"request_id", "serve.request_id"} {
			if v, _ := attr(s, key); v.AsString() != "client-7" {
				t.Errorf("span %q has %s %q", s.Name(), key, v.AsString())
			}
		}
	}
	if id := r.access.take(t, "request", 1)[0]["request_id"]; id != "client-7" {
		t.Errorf("log has request_id %v", id)
	}
}

// TestRequestIDInEachHead: a response has its own request's id, once, however it
// begins and whatever comes before it on its connection; a 1xx has none.
func TestRequestIDInEachHead(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	handlers := map[string]http.HandlerFunc{
		"/nothing": func(http.ResponseWriter, *http.Request) {},
		"/text":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") },
		"/own": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerRequestID, "the handler's own")
			w.WriteHeader(http.StatusCreated)
		},
		"/hints": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.WriteHeader(http.StatusNoContent)
		},
		"/headers": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", long[:10<<10]) },
		"/long":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) },
		"/flushed": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "later")
		},
		"/echo": func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
		"/trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"X-Last", "last")
		},
		"/nonsense": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1) }, // panics
	}
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Path](w, r) }))
	paths := slices.Concat(slices.Sorted(maps.Keys(handlers)), []string{"/text", "/own", "/text"})
	var requests strings.Builder
	for i, path := range paths {
		fmt.Fprintf(&requests, "POST %s HTTP/1.1\r\nHost: x\r\nX-Request-ID: %d\r\nContent-Length: 4\r\n", path, i)
		if path == "/echo" {
			requests.WriteString("Expect: 100-continue\r\n")
		}
		requests.WriteString("\r\nbody")
	}
	conn := r.dial(requests.String() + "GET /text HTTP/1.0\r\nX-Request-ID: last\r\n\r\n")
	responses := bufio.NewReader(conn)
	for i, path := range append(paths, "/text") {
		want := []string{strconv.Itoa(i)}
		if i == len(paths) {
			want[0] = "last"
		}
		resp, err := http.ReadResponse(responses, nil)
		for err == nil && resp.StatusCode < 200 {
			if ids := resp.Header[headerRequestID]; ids != nil {
				t.Errorf("%s: a response %d has X-Request-ID %q", path, resp.StatusCode, ids)
			}
			resp, err = http.ReadResponse(responses, nil)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if ids := resp.Header[headerRequestID]; err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s: body %v, X-Request-ID %q, want %q", path, err, ids, want)
		}
		if path == "/long" && string(body) != long || path == "/text" && string(body) != "text" ||
			path == "/headers" && resp.Header.Get("X-Long") != long[:10<<10] ||
			path == "/trailer" && resp.Trailer.Get("X-Last") != "last" {
			t.Errorf("%s: %d bytes, header %d bytes, trailer %v", path, len(body), len(resp.Header.Get("X-Long")), resp.Trailer)
		}
	}
}

// TestRequestIDOfSwitch: a 101 has its request's id where nobody asked for it, though
// net/http sends a 100 Continue after the handler has begun it.
func TestRequestIDOfSwitch(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	responses := bufio.NewReader(r.dial("POST / HTTP/1.1\r\nHost: x\r\nX-Request-ID: r1\r\n" +
		"Content-Length: 4\r\nExpect: 100-continue\r\n\r\nbody"))
	for _, want := range []string{"100", "101 r1"} {
		resp, err := http.ReadResponse(responses, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		got := strings.Join(append([]string{strconv.Itoa(resp.StatusCode)}, resp.Header[headerRequestID]...), " ")
		if got != want {
			t.Errorf("status and X-Request-ID %q, want %q", got, want)
		}
	}
}
