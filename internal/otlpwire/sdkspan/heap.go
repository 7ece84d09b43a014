package sdkspan

import (
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Sizes on the heap, in bytes.
const (
	// snapshotBytes is the SDK's private copy of a finished span (v1.47).
	snapshotBytes = 416
	keyValueBytes = int(unsafe.Sizeof(attribute.KeyValue{}))
	eventBytes    = int(unsafe.Sizeof(sdktrace.Event{}))
	linkBytes     = int(unsafe.Sizeof(sdktrace.Link{}))
	// memberBytes is a member of a trace state: two strings.
	memberBytes = 2 * int(unsafe.Sizeof(""))
)

// EstimateHeap estimates the heap, in bytes, that a finished span holds and
// that goes when it goes: the SDK's snapshot, its attributes, events, links and
// all their text. Resource and scope are shared and do not count. Text that the
// program shares between spans (keys, names) counts each time, so that the
// estimate errs upwards. It does not allocate, and costs some nanoseconds an
// attribute.
func EstimateHeap(s sdktrace.ReadOnlySpan) int {
	n := snapshotBytes + len(s.Name()) + len(s.Status().Description)
	n += heapOfAttributes(s.Attributes())
	n += heapOfTraceState(s.SpanContext().TraceState())
	events := s.Events()
	n += cap(events) * eventBytes
	for i := range events {
		n += len(events[i].Name) + heapOfAttributes(events[i].Attributes)
	}
	links := s.Links()
	n += cap(links) * linkBytes
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
