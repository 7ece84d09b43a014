package serving_test

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

type question struct {
	Text  string `json:"text"`
	Times int    `json:"times"`
}

type reply struct {
	Text string `json:"text"`
}

// TestJSON: what a client sees for each way in which it, or the function, can
// err. Only the function's own faults are events of spans.
func TestJSON(t *testing.T) {
	b := functions("B")
	repeat := serving.AddFunction(b, "", func(_ context.Context, q question) (any, error) {
		switch q.Text {
		case "fail":
			return nil, errBoom
		case "infinite":
			return math.Inf(1), nil
		}
		return reply{strings.Repeat(q.Text, q.Times)}, nil
	})
	ingress := serving.NewDeployment("A", serving.JSON(repeat.Call, serving.WithMaxJSONBytes(64)))
	r := startApps(t, serving.Config{}, serving.NewApp("a", ingress, serving.WithDeployments(b)))
	const text = "text/plain; charset=utf-8"
	for _, tt := range []struct {
		name, method, body string
		want               answer
		contentType        string
	}{
		{"right", "POST", `{"text":"ab","times":2,"more":1}`, answer{Status: 200, Body: "{\"text\":\"abab\"}\n"}, "application/json"},
		{"no body", "GET", "", answer{Status: 200, Body: "{\"text\":\"\"}\n"}, "application/json"},
		{"empty", "POST", "", answer{Status: 400, Body: "request body: empty, want JSON\n"}, text},
		{"not JSON", "POST", `{"text":ab}`, answer{Status: 400, Body: "request body: not JSON, at byte 9: invalid character 'a' looking for beginning of value\n"}, text},
		{"cut short", "PUT", `{"text":`, answer{Status: 400, Body: "request body: not JSON, at byte 8: unexpected end of JSON input\n"}, text},
		{"two values", "POST", `{} {}`, answer{Status: 400, Body: "request body: not JSON, at byte 4: invalid character '{' after top-level value\n"}, text},
		{"wrong type", "POST", `{"times":"two"}`, answer{Status: 400, Body: "request body: field \"times\": got a JSON string, want one for int\n"}, text},
		{"wrong at the top", "POST", `[]`, answer{Status: 400, Body: "request body: got a JSON array, want one for serving_test.question\n"}, text},
		{"too large", "POST", `{"text":"` + strings.Repeat("x", 64) + `"}`, answer{Status: 413, Body: "request body: more than 64 bytes\n"}, text},
		{"fails", "POST", `{"text":"fail"}`, answer{Status: 500, Body: "Internal Server Error"}, text},
		{"answer has no JSON", "POST", `{"text":"infinite"}`, answer{Status: 500, Body: "Internal Server Error"}, text},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, r.url("/"), strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got := answer{Status: resp.StatusCode, Body: string(body)}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("client saw (-want +got):\n%s", diff)
			}
			if ct := resp.Header.Get("Content-Type"); ct != tt.contentType {
				t.Errorf("Content-Type %q, want %q", ct, tt.contentType)
			}
			proxySpan := func() string {
				for _, s := range r.spans.all() {
					if d := digest(s); strings.HasPrefix(d, "proxy") {
						return d
					}
				}
				return ""
			}
			servingtest.Await(t, "the proxy span", func() bool { return proxySpan() != "" })
			if d := proxySpan(); strings.Contains(d, "event(") != (tt.want.Status == 500) {
				t.Errorf("status %d has the span %s", tt.want.Status, d)
			}
			r.spans.take(t, 3)
		})
	}
}

// TestJSONBodyThatBreaksOff: a body that is no HTTP is the client's fault.
func TestJSONBodyThatBreaksOff(t *testing.T) {
	r := start(t, serving.Config{}, serving.JSON(func(_ context.Context, q question) (reply, error) { return reply{q.Text}, nil }))
	c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	head := make([]byte, len("HTTP/1.1 400"))
	if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 400" {
		t.Errorf("client saw %q, %v", head, err)
	}
	if d := digest(r.spans.take(t, 3)[0]); strings.Contains(d, "event(") {
		t.Errorf("span %s, want no error of the handler", d)
	}
}

// TestJSONStream: as lines and as events, each as it comes, and cut off where
// the stream fails.
func TestJSONStream(t *testing.T) {
	goOn := make(chan struct{})
	b := functions("B")
	words := serving.AddStream(b, "", func(ctx context.Context, q question) iter.Seq2[reply, error] {
		return func(yield func(reply, error) bool) {
			for range q.Times {
				if !yield(reply{q.Text}, nil) {
					return
				}
				select {
				case <-goOn:
				case <-ctx.Done():
					return
				}
			}
			if q.Text == "fail" {
				_ = yield(reply{}, errBoom)
			}
		}
	})
	r := startApps(t, serving.Config{}, serving.NewApp("a", serving.NewDeployment("A", serving.JSONStream(words.Stream)), serving.WithDeployments(b)))
	for _, tt := range []struct {
		name, accept, body string
		items              []string
		want               answer // after the items
		contentType        string
	}{
		{"lines", "*/*", `{"text":"a","times":2}`, []string{"{\"text\":\"a\"}\n", "{\"text\":\"a\"}\n"}, answer{Status: 200}, "application/x-ndjson"},
		{
			"events", "text/html, text/event-stream;q=0.9", `{"text":"a","times":2}`,
			[]string{"data: {\"text\":\"a\"}\n\n", "data: {\"text\":\"a\"}\n\n"}, answer{Status: 200}, "text/event-stream",
		},
		{"nothing", "", `{}`, nil, answer{Status: 200}, "application/x-ndjson"},
		{"fails at once", "", `{"text":"fail"}`, nil, answer{Status: 500, Body: "Internal Server Error"}, "text/plain; charset=utf-8"},
		{"fails later", "", `{"text":"fail","times":1}`, []string{"{\"text\":\"fail\"}\n"}, answer{Status: 200, Cut: true}, "application/x-ndjson"},
		{"bad request", "", `{`, nil, answer{Status: 400, Body: "request body: not JSON, at byte 1: unexpected end of JSON input\n"}, "text/plain; charset=utf-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), servingtest.Patience)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url("/"), strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", tt.accept)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			for _, item := range tt.items { // the next comes only when this one is here
				got := make([]byte, len(item))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != item {
					t.Fatalf("got %q, %v; want %q", got, err, item)
				}
				goOn <- struct{}{}
			}
			rest, err := io.ReadAll(resp.Body)
			got := answer{Status: resp.StatusCode, Body: string(rest), Cut: err != nil}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("client saw (-want +got):\n%s", diff)
			}
			if ct := resp.Header.Get("Content-Type"); ct != tt.contentType {
				t.Errorf("Content-Type %q, want %q", ct, tt.contentType)
			}
		})
	}
}

// TestJSONFloat: numbers go through as JSON has them.
func TestJSONFloat(t *testing.T) {
	r := start(t, serving.Config{}, serving.JSON(func(_ context.Context, in []float64) (map[string]float64, error) {
		sum := 0.0
		for _, x := range in {
			sum += x
		}
		return map[string]float64{"sum": sum}, nil
	}))
	resp, err := r.client.Post(r.url("/"), "application/json", strings.NewReader("[0.5, 1e3]"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var out map[string]float64
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out["sum"] != 1000.5 {
		t.Errorf("got %v, %v", out, err)
	}
}
