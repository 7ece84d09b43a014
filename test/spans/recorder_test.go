package spans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// recorder is the span processor in the exporter's place: it keeps every span.
type recorder struct {
	mu      sync.Mutex
	ended   map[trace.TraceID][]sdktrace.ReadOnlySpan
	open    map[trace.TraceID]int
	started int
	changed chan struct{} // closed, and made anew, at every start and end of a span
}

func newRecorder() *recorder {
	return &recorder{
		ended:   map[trace.TraceID][]sdktrace.ReadOnlySpan{},
		open:    map[trace.TraceID]int{},
		changed: make(chan struct{}),
	}
}

func (r *recorder) ForceFlush(context.Context) error { return nil }
func (r *recorder) Shutdown(context.Context) error   { return nil }

func (r *recorder) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	r.open[s.SpanContext().TraceID()]++
	r.wakeLocked()
}

func (r *recorder) OnEnd(s sdktrace.ReadOnlySpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := s.SpanContext().TraceID()
	r.open[id]--
	r.ended[id] = append(r.ended[id], s)
	r.wakeLocked()
}

func (r *recorder) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// count is how many spans were ever started.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started
}

// await waits until found, which it calls with the lock, returns true.
func (r *recorder) await(t testing.TB, event string, found func() bool) {
	t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		ok, changed := found(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("waited in vain for %s; there are %s", event, r.names())
		}
	}
}

// waitFor waits until so many spans were started.
func (r *recorder) waitFor(t testing.TB, started int) {
	t.Helper()
	r.await(t, fmt.Sprintf("%d spans to be started", started), func() bool { return r.started >= started })
}

// trace waits until a trace has spans and none that is open, and returns them.
func (r *recorder) trace(t testing.TB, id trace.TraceID) (spans []sdktrace.ReadOnlySpan) {
	t.Helper()
	r.await(t, fmt.Sprintf("the end of trace %v", id), func() bool {
		spans = slices.Clone(r.ended[id])
		return len(spans) > 0 && r.open[id] == 0
	})
	return spans
}

// request waits until the trace of the request with an id is complete, and returns its
// spans: its root, which ends when the request is done, has ended, and no started span
// is open.
func (r *recorder) request(t testing.TB, id string) (spans []sdktrace.ReadOnlySpan) {
	t.Helper()
	r.await(t, fmt.Sprintf("the spans of request %q", id), func() bool {
		spans = r.completeLocked(id)
		return spans != nil
	})
	return spans
}

// completeLocked returns the spans of the trace, without the spans of other requests, which
// a caller's traceparent may have put into the trace. A span without a parent in the
// trace is among them.
func (r *recorder) completeLocked(id string) []sdktrace.ReadOnlySpan {
	for traceID, spans := range r.ended {
		if r.open[traceID] != 0 || !slices.ContainsFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return isRootOf(s, id) }) {
			continue
		}
		byID := map[trace.SpanID]sdktrace.ReadOnlySpan{}
		for _, s := range spans {
			byID[s.SpanContext().SpanID()] = s
		}
		return slices.DeleteFunc(slices.Clone(spans), func(s sdktrace.ReadOnlySpan) bool {
			for parent := byID[s.Parent().SpanID()]; parent != nil; parent = byID[s.Parent().SpanID()] {
				s = parent
			}
			_, isRequest := attributeOf(s, "request_id")
			return isRequest && enters(s) && !isRootOf(s, id)
		})
	}
	return nil
}

// isRootOf reports whether s is where the trace of a request enters the process.
func isRootOf(s sdktrace.ReadOnlySpan, id string) bool {
	value, ok := attributeOf(s, "request_id")
	return ok && value.AsString() == id && enters(s)
}

// enters reports whether no span of this process is s's parent.
func enters(s sdktrace.ReadOnlySpan) bool { return !s.Parent().IsValid() || s.Parent().IsRemote() }

func (r *recorder) names() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for id, spans := range r.ended {
		for _, s := range spans {
			names = append(names, fmt.Sprintf("\n%s in %s, with %d open", s.Name(), id, r.open[id]))
		}
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

func attributeOf(s sdktrace.ReadOnlySpan, key attribute.Key) (attribute.Value, bool) {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return attribute.Value{}, false
}

// inOrder sorts spans by name and start.
func inOrder(spans []sdktrace.ReadOnlySpan) {
	slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), a.StartTime().Compare(b.StartTime()))
	})
}
