package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "composition", main) }

// describe asks about text, as part of the caller's trace.
func describe(t *testing.T, url, text, traceparent string) (status int, body string) {
	t.Helper()
	in, err := json.Marshal(Text{text})
	if err != nil {
		t.Fatal(err)
	}
	return servicetest.Do(t, url+"/describe", string(in), "Traceparent", traceparent)
}

// tree returns the name of the parent of each printed span, with a mark for each event.
func tree(t *testing.T, text string) map[string]string {
	t.Helper()
	names := map[string]string{"0x" + servicetest.CallerID: "the client"}
	list := servicetest.Spans(t, text)
	for _, s := range list {
		if s.Context.TraceID != "0x"+servicetest.TraceID {
			t.Errorf("span %q is of trace %s", s.Name, s.Context.TraceID)
		}
		names[s.Context.SpanID] = s.Name
	}
	parents := map[string]string{}
	for _, s := range list {
		parents[s.Name] = names[s.ParentID] + strings.Repeat(" !", len(s.Events))
	}
	if len(parents) != len(list) {
		t.Errorf("%d spans with %d names, want each once", len(list), len(parents))
	}
	return parents
}

// family are the spans of the request, each with its parent.
func family() map[string]string {
	return map[string]string{
		"proxy_http_request Gateway POST /describe": "the client",
		"route_to_replica Gateway __call__":         "proxy_http_request Gateway POST /describe",
		"replica_handle_request Gateway __call__":   "route_to_replica Gateway __call__",
		"route_to_replica Shortener shorten":        "replica_handle_request Gateway __call__",
		"replica_handle_request Shortener shorten":  "route_to_replica Shortener shorten",
		"route_to_replica Tokenizer tokens":         "replica_handle_request Shortener shorten",
		"replica_handle_request Tokenizer tokens":   "route_to_replica Tokenizer tokens",
		"route_to_replica Sentiment __call__":       "replica_handle_request Gateway __call__",
		"replica_handle_request Sentiment __call__": "route_to_replica Sentiment __call__",
	}
}

// One request through four deployments is one trace: a chain of three, and two
// calls side by side. The request that is not sampled makes no span in any.
func TestOneTraceOfAllDeployments(t *testing.T) {
	s := servicetest.Start(t, "composition", nil)
	for _, traceparent := range []string{servicetest.Unsampled, servicetest.Sampled} {
		status, body := describe(t, s.URL, "A good day. Then rain came.", traceparent)
		if want := `{"short":"A good day.","mood":"cheerful"}` + "\n"; status != http.StatusOK || body != want {
			t.Errorf("status %d, body %q, want %q", status, body, want)
		}
	}
	s.Stop() // all spans are delivered
	if diff := cmp.Diff(family(), tree(t, s.Stdout.String())); diff != "" {
		t.Errorf("spans and their parents (-want +got):\n%s", diff)
	}
}

// The failure at the end of the chain comes back through all of it, and is seen
// on each of its spans.
func TestFailureComesBack(t *testing.T) {
	s := servicetest.Start(t, "composition", nil)
	if status, body := describe(t, s.URL, " ", servicetest.Sampled); status != http.StatusInternalServerError {
		t.Errorf("status %d, body %q", status, body)
	}
	s.Stop()
	want := family()
	for _, failed := range []string{
		"proxy_http_request Gateway POST /describe", "replica_handle_request Gateway __call__",
		"replica_handle_request Shortener shorten", "replica_handle_request Tokenizer tokens",
	} {
		want[failed] += " !" // an event: the exception
	}
	if diff := cmp.Diff(want, tree(t, s.Stdout.String())); diff != "" {
		t.Errorf("spans, their parents and events (-want +got):\n%s", diff)
	}
}

func TestWrongArguments(t *testing.T) {
	servicetest.WrongArguments(t, "composition", "address to serve HTTP on")
}
