package serving_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
)

// goesForward fails if time goes backwards among the spans of a request: if a span
// starts before its parent, ends before it starts, or ends after the proxy's.
func goesForward(t *testing.T, spans []sdktrace.ReadOnlySpan) {
	t.Helper()
	byID := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	var proxy sdktrace.ReadOnlySpan
	for _, s := range spans {
		byID[s.SpanContext().SpanID()] = s
		if strings.HasPrefix(s.Name(), "proxy") {
			proxy = s
		}
	}
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
		if s.StartTime().Before(parent.StartTime()) {
			t.Errorf("%q starts %v before %q", s.Name(), parent.StartTime().Sub(s.StartTime()), parent.Name())
		}
		if router := strings.HasPrefix(parent.Name(), "route_to_replica"); router && s.StartTime().Before(parent.EndTime()) {
			t.Errorf("%q starts %v before the choice of its replica has ended", s.Name(), parent.EndTime().Sub(s.StartTime()))
		}
	}
}

// TestTimeGoesForward: also if a request is handed over to another goroutine, and
// if it ends otherwise than by its handler.
func TestTimeGoesForward(t *testing.T) {
	chained, inC := threeDeployments(t)
	checkStatus(t, chained.get("/items/seven"), http.StatusOK)
	<-inC
	goesForward(t, chained.spans.take(t, 7))

	fails := serving.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errors.New("boom") })
	http1 := start(t, serving.Config{}, fails)
	checkStatus(t, http1.get("/"), http.StatusInternalServerError)
	goesForward(t, http1.spans.take(t, 3))

	for _, s := range []testService{{}, failing(errors.New("boom"))} {
		r := startGRPC(t, serving.Config{}, s)
		_ = r.unaryCall() // however it ends
		goesForward(t, r.spans.take(t, 3))
	}
}
