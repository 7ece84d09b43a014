package sdkspan

import (
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/ended"
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

// Gist is what a queue of spans wants to know of one.
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
// if not, nothing else is said of it. It does not allocate.
func GistOf(s sdktrace.ReadOnlySpan) (g Gist, ok bool) {
	f, holder := see(s)
	if f == nil {
		return foreignGist(s)
	}
	g, ok = gist(f)
	if holder != nil {
		g.Heap += holder.UnseenHeap()
	}
	return g, ok
}

// foreignGist reads no more than gist looks at. It is apart from GistOf for its
// large frame: requests pay for those.
func foreignGist(s sdktrace.ReadOnlySpan) (g Gist, ok bool) {
	f := ended.Span{SpanContext: s.SpanContext()}
	if f.SpanContext.IsSampled() {
		f.Name, f.Status = s.Name(), s.Status()
		f.Attributes, f.Events, f.Links = s.Attributes(), s.Events(), s.Links()
	}
	return gist(&f)
}

func gist(f *ended.Span) (g Gist, ok bool) {
	if !f.SpanContext.IsSampled() {
		return Gist{}, false
	}
	return Gist{Heap: heap(f), Failed: f.Status.Code == codes.Error}, true
}

// heap is Gist.Heap.
func heap(f *ended.Span) int {
	n := snapshotBytes + len(f.Name) + len(f.Status.Description)
	n += heapOfAttributes(f.Attributes)
	n += heapOfTraceState(f.SpanContext.TraceState())
	n += cap(f.Events) * eventBytes
	for i := range f.Events {
		n += len(f.Events[i].Name) + heapOfAttributes(f.Events[i].Attributes)
	}
	n += cap(f.Links) * linkBytes
	for i := range f.Links {
		n += heapOfTraceState(f.Links[i].SpanContext.TraceState()) + heapOfAttributes(f.Links[i].Attributes)
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
