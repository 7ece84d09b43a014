package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "streaming", main) }

// get gives the beginning of a response, and its body, which is closed as the
// test ends.
func get(ctx context.Context, t *testing.T, url string) (http.Header, io.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Header, resp.Body
}

func TestStreamsAreWhole(t *testing.T) {
	s := servicetest.Start(t, "streaming", []string{"--pause", "1ms"})
	for path, want := range map[string]string{
		"/text?about=it": "What\nthere\nis\nto\nsay\nabout\nit\nhas\nbeen\nsaid.\n",
		"/events?about=it": "data: What\n\ndata: there\n\ndata: is\n\ndata: to\n\ndata: say\n\ndata: about\n\ndata: it\n\n" +
			"data: has\n\ndata: been\n\ndata: said.\n\nevent: end\ndata: \n\n",
	} {
		_, body := get(t.Context(), t, s.URL+path)
		got, err := io.ReadAll(body)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	_, body := get(t.Context(), t, s.URL+"/")
	if got, err := io.ReadAll(body); err != nil || !strings.Contains(string(got), "EventSource") {
		t.Errorf("the page: %q, %v", got, err)
	}
}

// TestHeadBeforeTheFirstEvent, and each event before the next: the word takes an
// hour.
func TestHeadBeforeTheFirstEvent(t *testing.T) {
	s := servicetest.Start(t, "streaming", []string{"--pause", "1h"})
	ctx, leave := context.WithCancel(t.Context())
	header, _ := get(ctx, t, s.URL+"/events?about=it")
	if got := header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	leave()
	s.Await(s.Log, "client disconnected", 1)
}

// TestClientThatLeaves ends a stream without end, in both deployments.
func TestClientThatLeaves(t *testing.T) {
	s := servicetest.Start(t, "streaming", []string{"--pause", "1ms"})
	ctx, leave := context.WithCancel(t.Context())
	_, body := get(ctx, t, s.URL+"/events?about=everything")
	lines := bufio.NewReader(body)
	for range 50 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	s.Await(s.Log, "client disconnected", 1)
	s.Stop() // all spans are delivered
	for _, want := range []string{
		`"proxy_http_request Gateway GET /events"`, `"replica_handle_request Gateway __call__"`, `"replica_handle_request Generator generate"`,
	} {
		if !strings.Contains(s.Stdout.String(), want) {
			t.Errorf("no span %s", want)
		}
	}
	if n := strings.Count(s.Stdout.String(), `"exception.type": "context.Canceled"`); n < 2 {
		t.Errorf("%d spans tell that the client has left, want those of the proxy and the ingress at least", n)
	}
}

func TestWrongArguments(t *testing.T) {
	servicetest.WrongArguments(t, "streaming", "address to serve HTTP on")
}
