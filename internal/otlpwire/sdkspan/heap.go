package sdkspan

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Sizes on the heap, in bytes, of 64-bit machines.
const (
	snapshotBytes = 416 // the SDK's copy of a finished span
	keyValueBytes = 64
	eventBytes    = 72
	linkBytes     = 96
	memberBytes   = 32 // a member of a trace state
)

// Gist is the summary of a span that a queue in front of the encoder needs.
type Gist struct {
	// Heap estimates the heap, in bytes, that the span holds and that goes when
	// it goes: the SDK's snapshot, its attributes, events, links and all their
	// text. Resource and scope are shared and do not count. Text that the program
	// shares between spans (keys, names) counts each time, so that the estimate
	// errs upwards. It costs some nanoseconds an attribute.
	Heap int
	// Failed: its status is an error.
	Failed bool
}

// GistOf looks at a span that has ended; ok tells whether it is sampled, and
// if not, nothing else is said of it. It does not allocate for scalar attributes.
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
	if ts.Len() == 0 {
		return 0
	}
	return ts.Len()*memberBytes + traceStateLen(ts)
}
