package sdkspan

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Sizes of types on the heap of 64-bit machines, in bytes.
const (
	snapshotBytes = 416 // the SDK's copy of an ended span
	keyValueBytes = 64
	eventBytes    = 72
	linkBytes     = 96
	memberBytes   = 32 // a member of a trace state
)

// Gist is the summary of a span for the queue in which spans wait for the encoder.
type Gist struct {
	// Heap is an estimate of the heap memory that is freed with the span, in bytes: the SDK's
	// snapshot, its attributes, events, links and their texts. It does not include the resource
	// and the scope, which spans share. Texts that spans share, such as keys and names, count
	// for each span, so the estimate tends to be high.
	Heap int
	// Failed reports that the span's status is an error.
	Failed bool
}

// GistOf returns the Gist of a span that has ended, and reports whether the span is sampled. The
// Gist of a span that is not sampled is zero. GistOf does not allocate for scalar attributes.
func GistOf(s sdktrace.ReadOnlySpan) (g Gist, ok bool) {
	sc := s.SpanContext()
	if !sc.IsSampled() {
		return Gist{}, false
	}
	status := s.Status()
	n := snapshotBytes + len(s.Name()) + len(status.Description) + heapOfTraceState(sc.TraceState())
	n += heapOfAttributes(s.Attributes()) + heapOfEvents(s.Events()) + heapOfLinks(s.Links())
	return Gist{Heap: n, Failed: status.Code == codes.Error}, true
}

func heapOfEvents(events []sdktrace.Event) int {
	n := cap(events) * eventBytes
	for i := range events {
		n += len(events[i].Name) + heapOfAttributes(events[i].Attributes)
	}
	return n
}

func heapOfLinks(links []sdktrace.Link) int {
	n := cap(links) * linkBytes
	for i := range links {
		n += heapOfTraceState(links[i].SpanContext.TraceState()) + heapOfAttributes(links[i].Attributes)
	}
	return n
}

func heapOfAttributes(kvs []attribute.KeyValue) int {
	n := cap(kvs) * keyValueBytes
	for i := range kvs {
		n += len(kvs[i].Key) + otlpwire.ValueHeap(&kvs[i].Value)
	}
	return n
}

func heapOfTraceState(ts trace.TraceState) int {
	n := ts.Len()*memberBytes + max(0, 2*ts.Len()-1) // one "=" for each member, and "," between members
	ts.Walk(func(key, value string) bool {
		n += len(key) + len(value)
		return true
	})
	return n
}
