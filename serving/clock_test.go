package serving

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// outerOf gives the parent of each span of a request but of the proxy's, and fails
// where time goes backwards: where a span starts before its parent, ends before it
// starts, or ends after the proxy's.
func outerOf(t *testing.T, spans []sdktrace.ReadOnlySpan) map[sdktrace.ReadOnlySpan]sdktrace.ReadOnlySpan {
	t.Helper()
	byID := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	var proxy sdktrace.ReadOnlySpan
	for _, s := range spans {
		byID[s.SpanContext().SpanID()] = s
		if strings.HasPrefix(s.Name(), "proxy") {
			proxy = s
		}
	}
	outer := map[sdktrace.ReadOnlySpan]sdktrace.ReadOnlySpan{}
	for _, s := range spans {
		if s.EndTime().Before(s.StartTime()) {
			t.Errorf("%q ends %v before it starts", s.Name(), s.StartTime().Sub(s.EndTime()))
		}
		if s.EndTime().After(proxy.EndTime()) {
			t.Errorf("%q ends %v after the proxy", s.Name(), s.EndTime().Sub(proxy.EndTime()))
		}
		for _, e := range s.Events() {
			if e.Time.After(s.EndTime()) {
				t.Errorf("%q has an event %v after its end", s.Name(), e.Time.Sub(s.EndTime()))
			}
		}
		if s == proxy {
			continue
		}
		parent := byID[s.Parent().SpanID()]
		outer[s] = parent
		if s.StartTime().Before(parent.StartTime()) {
			t.Errorf("%q starts %v before %q", s.Name(), parent.StartTime().Sub(s.StartTime()), parent.Name())
		}
		if router := strings.HasPrefix(parent.Name(), "route_to_replica"); router && s.StartTime().Before(parent.EndTime()) {
			t.Errorf("%q starts %v before the choice of its replica has ended", s.Name(), parent.EndTime().Sub(s.StartTime()))
		}
	}
	return outer
}

// TestInstantsAreReadOnce: where one goroutine goes on from router to replica, the
// one's end is the other's start, and a request of HTTP/1.1 ends as its handler does.
func TestInstantsAreReadOnce(t *testing.T) {
	r, inC := threeDeployments(t)
	checkStatus(t, r.get("/items/seven"), http.StatusOK)
	<-inC
	spans := r.spans.take(t, 7)
	outer := outerOf(t, spans)
	for s, parent := range outer {
		if strings.HasPrefix(s.Name(), "replica_handle_request") && !s.StartTime().Equal(parent.EndTime()) {
			t.Errorf("%q starts %v after its router has ended", s.Name(), s.StartTime().Sub(parent.EndTime()))
		}
	}
	byName := chain(t, spans, chainABC...)
	if a, proxy := byName[chainABC[2]], byName[chainABC[0]]; !a.EndTime().Equal(proxy.EndTime()) {
		t.Errorf("the proxy ends %v after the handler", proxy.EndTime().Sub(a.EndTime()))
	}
}

// TestTimeGoesForward: so it does where a request is handed over to another
// goroutine, and where it ends otherwise than by its handler.
func TestTimeGoesForward(t *testing.T) {
	fails := HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errors.New("boom") })
	http1 := start(t, Config{}, fails)
	checkStatus(t, http1.get("/"), http.StatusInternalServerError)
	outerOf(t, http1.spans.take(t, 3))

	for _, s := range []testService{{}, failing(errors.New("boom"))} {
		r := startGRPC(t, Config{}, s)
		_ = r.unaryCall() // however it ends
		outerOf(t, r.spans.take(t, 3))
	}
}
