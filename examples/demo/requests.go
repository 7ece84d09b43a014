package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The trace context of the second request.
const (
	upstreamTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	upstreamSpan  = "00f067aa0ba902b7"
)

// request is a request of the demo and its expected results.
type request struct {
	title  string
	path   string
	header map[string]string

	status int      // expected status of the response
	body   string   // expected body
	want   []expect // expected spans, in the order of their parents
}

// requests lists all requests of the demo.
var requests = []request{
	{
		title: "a plain request", path: "/",
		status: http.StatusOK, body: "Hello world!\n",
		want: chain("/", http.StatusOK, "OK", "OK"),
	},
	{
		title: "a request that belongs to a caller's trace", path: "/",
		header: map[string]string{
			"traceparent": "00-" + upstreamTrace + "-" + upstreamSpan + "-01",
			"tracestate":  "vendor=demo",
		},
		status: http.StatusOK, body: "Hello world!\n",
		want: continued(chain("/", http.StatusOK, "OK", "OK")),
	},
	{
		title: "a stream", path: "/stream",
		status: http.StatusOK, body: "one\ntwo\nthree\n",
		want: chain("/stream", http.StatusOK, "OK", "UNSET"),
	},
	{
		title: "a request that fails", path: "/fail",
		status: http.StatusInternalServerError, body: "Internal Server Error",
		want: failed(chain("/fail", http.StatusInternalServerError, "ERROR", "ERROR")),
	},
}

// chain returns the expected spans of a request to hello: proxy, router, replica and
// the handler's own span.
func chain(route string, status int, proxy, handler string) []expect {
	code := float64(status) // as encoding/json decodes numbers
	return []expect{
		{name: "proxy_http_request HelloWorld GET " + route, kind: "SpanKind.SERVER", status: proxy,
			attributes: map[string]any{"http.status_code": code, "http.route": route, "app": "default"}},
		{name: "route_to_replica HelloWorld __call__", kind: "SpanKind.SERVER", status: "UNSET",
			attributes: map[string]any{"http.route": route, "is_http_request": true}},
		{name: "replica_handle_request HelloWorld __call__", kind: "SpanKind.SERVER", status: "UNSET",
			attributes: map[string]any{"http.status_code": code, "http.route": route, "is_streaming": true}},
		{name: "application_span", kind: "SpanKind.INTERNAL", status: handler,
			attributes: map[string]any{"deployment": "HelloWorld"}},
	}
}

func continued(want []expect) []expect {
	want[0].parent = "0x" + upstreamSpan
	for i := range want {
		want[i].trace, want[i].state = "0x"+upstreamTrace, "vendor=demo"
	}
	return want
}

func failed(want []expect) []expect {
	for _, i := range []int{0, 2, 3} { // the router span succeeded
		want[i].exception = "model not found"
	}
	return want
}

// show sends the request with the request id, and prints the response and the plugin's
// drawing. It returns all mismatches.
func (r request) show(ctx context.Context, w io.Writer, s *service[*drawing], id string) error {
	printf(w, "\n== %s: GET %s\n", r.title, r.path)
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		printf(w, "   %s: %s\n", name, r.header[name])
	}
	wrong := r.send(ctx, w, s.url, id)
	drawings, err := s.await(ctx, id, len(r.want))
	for _, one := range drawings {
		printf(w, "\n%s", one.text)
	}
	if err != nil {
		return errors.Join(wrong, err)
	}
	return errors.Join(wrong, checkDrawings(drawings, r.want))
}

// check sends the request with the request id, and returns its spans in the order of
// their parents, and all mismatches.
func (r request) check(ctx context.Context, s *service[*span], id string) ([]*span, error) {
	wrong := r.send(ctx, io.Discard, s.url, id)
	spans, err := s.await(ctx, id, len(r.want))
	if err != nil {
		return spans, errors.Join(wrong, err)
	}
	order, err := byParent(spans)
	if err != nil {
		return spans, errors.Join(wrong, err)
	}
	for i, want := range r.want {
		wrong = errors.Join(wrong, want.check(order, i))
	}
	return order, wrong
}

// send sends the request and prints the response line by line as it arrives.
func (r request) send(ctx context.Context, w io.Writer, url, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+r.path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-Request-ID", id)
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	sent := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end below
	printf(w, "-> %s, X-Request-ID %s\n", resp.Status, resp.Header.Get("X-Request-ID"))
	var body strings.Builder
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			printf(w, "-> %3d ms  %s\n", time.Since(sent).Milliseconds(), strings.TrimSuffix(line, "\n"))
			body.WriteString(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the body: %w", err)
		}
	}
	return errors.Join(
		differs("status", resp.StatusCode, r.status),
		differs("body", body.String(), r.body),
		differs("X-Request-ID", resp.Header.Get("X-Request-ID"), id))
}
