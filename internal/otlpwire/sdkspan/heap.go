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
	moreBytes     = int(unsafe.Sizeof(ended.More{}))
	contextBytes  = int(unsafe.Sizeof(trace.SpanContext{}))
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
	f, l := see(s)
	switch {
	case f != nil:
		return gist(f)
	case l != nil:
		return lightGist(l)
	}
	return foreignGist(s)
}

// lightGist looks at no attribute: the holder knows what they hold.
func lightGist(l *ended.Light) (g Gist, ok bool) {
	if !l.Flags.IsSampled() {
		return Gist{}, false
	}
	n := int(l.Bytes) + len(l.Like.Name)
	if l.State != nil {
		n += heapOfTraceState(*l.State)
	}
	if l.Outer != nil {
		n += contextBytes
	}
	if l.More != nil {
		n += moreBytes + len(l.More.Description) + heapOfAttributes(l.More.Attributes) + heapOfEvents(l.More.Events) + heapOfLinks(l.More.Links)
	}
	return Gist{Heap: n, Failed: codes.Code(l.Code) == codes.Error}, true
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
	return n + heapOfEvents(f.Events) + heapOfLinks(f.Links)
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
