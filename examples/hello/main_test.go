package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/servicetest"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	servicetest.Main(m, "hello", main)
}

// serve runs hello while f sends requests, and returns the printed spans and the log.
func serve(t *testing.T, f func(url string), environ ...string) (spans []servicetest.Span, log string) {
	t.Helper()
	s := servicetest.Start(t, "hello", nil, environ...)
	f(s.URL)
	s.Stop()
	return servicetest.Spans(t, s.Stdout.String()), s.Log.String()
}

// The responses of the client and the spans agree.
func TestHello(t *testing.T) {
	for _, tc := range []struct {
		path   string
		status int
		body   string
		// of proxy and handler; the other two have none.
		proxy, handler, description string
		events                      map[string]int // by the handler's and the proxy's names
	}{
		{"/", 200, "Hello world!\n", "OK", "OK", "", nil},
		{"/fail", 500, "Internal Server Error", "ERROR", "ERROR", "model not found",
			map[string]int{"proxy exception": 1, "handler exception": 1}},
		{"/stream", 200, "one\ntwo\nthree\n", "OK", "UNSET", "", map[string]int{"handler sent": 3}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			spans, _ := serve(t, func(url string) {
				status, body := servicetest.Do(t, url+tc.path, "", "X-Request-Id", "r1", "Traceparent", servicetest.Sampled, "Tracestate", "vendor=x")
				if status != tc.status || body != tc.body {
					t.Errorf("status %d, body %q; want %d, %q", status, body, tc.status, tc.body)
				}
			})
			byName := map[string]servicetest.Span{}
			for _, s := range spans {
				byName[s.Name] = s
				if s.Context.TraceID != "0x"+servicetest.TraceID || !strings.Contains(s.Context.State, "vendor") {
					t.Errorf("span %q is of trace %s with state %s, want the caller's", s.Name, s.Context.TraceID, s.Context.State)
				}
				if s.Attributes["serve.request_id"] != "r1" {
					t.Errorf("span %q is of request %v", s.Name, s.Attributes["serve.request_id"])
				}
			}
			chain := []string{"proxy_http_request HelloWorld GET " + tc.path, "route_to_replica HelloWorld __call__",
				"replica_handle_request HelloWorld __call__", "application_span"}
			if len(spans) != len(chain) {
				t.Fatalf("%d spans, want %d: %v", len(spans), len(chain), spans)
			}
			parent := "0x" + servicetest.CallerID
			for i, name := range chain {
				s := byName[name]
				status := []string{tc.proxy, "UNSET", "UNSET", tc.handler}[i]
				if s.ParentID != parent || s.Status.Code != status {
					t.Errorf("span %q: parent %s, status %s; want %s, %s", name, s.ParentID, s.Status.Code, parent, status)
				}
				parent = s.Context.SpanID
			}
			proxy, handler := byName[chain[0]], byName[chain[3]]
			if got := proxy.Attributes["http.status_code"]; got != float64(tc.status) {
				t.Errorf("http.status_code %v, want %d", got, tc.status)
			}
			if proxy.Status.Description != tc.description {
				t.Errorf("description %q, want %q", proxy.Status.Description, tc.description)
			}
			id := byName[chain[2]].Attributes["replica_id"]
			if handler.Attributes["deployment"] != "HelloWorld" || handler.Attributes["replica_id"] != id || id == nil {
				t.Errorf("application_span has %v, want deployment HelloWorld and replica_id %v", handler.Attributes, id)
			}
			events := map[string]int{}
			for who, s := range map[string]servicetest.Span{"proxy": proxy, "handler": handler} {
				for _, e := range s.Events {
					events[who+" "+e.Name]++
				}
			}
			if len(events) == 0 {
				events = nil
			}
			if diff := cmp.Diff(tc.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Both replicas are used, and no others.
func TestTwoReplicas(t *testing.T) {
	spans, _ := serve(t, func(url string) {
		for range 60 { // one replica alone would be taken once in 10^18 times
			servicetest.Do(t, url, "")
		}
	})
	replicas := map[any]bool{}
	for _, s := range spans {
		if id := s.Attributes["serve.replica_id"]; id != nil {
			replicas[id] = true
		}
	}
	if len(replicas) != 2 || len(spans) != 4*60 {
		t.Errorf("replicas %v and %d spans, want two and 240", replicas, len(spans))
	}
}

func TestHelloWithoutTracing(t *testing.T) {
	spans, log := serve(t, func(url string) {
		if status, body := servicetest.Do(t, url, ""); status != 200 || body != "Hello world!\n" {
			t.Errorf("status %d, body %q", status, body)
		}
	}, "SERVE_TRACING_EXPORTER_PLUGIN=")
	if len(spans) != 0 || !strings.Contains(log, "tracing=off") || !strings.Contains(log, "curl -i http://127.0.0.1:") {
		t.Errorf("%d spans, and the log:\n%s", len(spans), log)
	}
}

func TestWrongArguments(t *testing.T) {
	servicetest.WrongArguments(t, "hello", "address to serve HTTP on",
		servicetest.Argument{Args: []string{"--port", "1"}, Code: 2, Want: "flag provided but not defined: -port"})
}
