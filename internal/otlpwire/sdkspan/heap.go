package sdkspan

import (
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
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
	// Dice is a byte of the span's id, which is random.
	Dice byte
}

// GistOf looks at a span that has ended; ok tells whether it is sampled, and
// if not, nothing else is said of it. It does not allocate.
func GistOf(s sdktrace.ReadOnlySpan) (g Gist, ok bool) {
	if f := see(s); f != nil {
		return f.gist()
	}
	return foreignGist(s)
}

// foreignGist reads no more than gist looks at. It is apart from GistOf for its
// large frame: requests pay for those. A wrapper around a span of the SDK's may
// hold more than it shows, and then tells how much.
func foreignGist(s sdktrace.ReadOnlySpan) (g Gist, ok bool) {
	f := snapshot{spanContext: s.SpanContext()}
	if f.spanContext.IsSampled() {
		f.name, f.status = s.Name(), s.Status()
		f.attributes, f.events, f.links = s.Attributes(), s.Events(), s.Links()
	}
	g, ok = f.gist()
	if more, is := s.(interface{ UnseenHeap() int }); is && ok {
		g.Heap += more.UnseenHeap()
	}
	return g, ok
}

func (f *snapshot) gist() (g Gist, ok bool) {
	if !f.spanContext.IsSampled() {
		return Gist{}, false
	}
	id := f.spanContext.SpanID()
	return Gist{Heap: f.heap(), Failed: f.status.Code == codes.Error, Dice: id[len(id)-1]}, true
}

// heap is Gist.Heap.
func (f *snapshot) heap() int {
	n := snapshotBytes + len(f.name) + len(f.status.Description)
	n += heapOfAttributes(f.attributes)
	n += heapOfTraceState(f.spanContext.TraceState())
	n += cap(f.events) * eventBytes
	for i := range f.events {
		n += len(f.events[i].Name) + heapOfAttributes(f.events[i].Attributes)
	}
	n += cap(f.links) * linkBytes
	for i := range f.links {
		n += heapOfTraceState(f.links[i].SpanContext.TraceState()) + heapOfAttributes(f.links[i].Attributes)
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
