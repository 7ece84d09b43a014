package otlpwire

import (
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Event is a view of one event of a span. Its reads see the edits recorded so
// far, by any view of the same event.
type Event struct{ c child }

// Time is in nanoseconds since the Unix epoch.
func (e Event) Time() uint64 { return e.c.r.number(e.c.p, field.EventTime, protowire.Fixed64Type) }

// Name is the event's name.
func (e Event) Name() string {
	if edit := e.c.edit(); edit != nil && edit.named {
		return edit.name
	}
	return e.c.r.intern(e.c.r.content(e.c.p, field.EventName))
}

// Attribute finds an attribute by its key; of several the last.
func (e Event) Attribute(key string) (Value, bool) {
	return e.attributes().find(key)
}

// Attributes goes through the attributes as they stand, those that were added
// at the end. Edits are allowed meanwhile.
func (e Event) Attributes() iter.Seq2[string, Value] { return e.attributes().all() }

// DroppedAttributes is how many attributes the SDK left out for its limits.
func (e Event) DroppedAttributes() uint32 { return e.c.r.count(e.c.p, field.EventDroppedAttributes) }

// SetAttribute does what Span.SetAttribute does.
func (e Event) SetAttribute(kv attribute.KeyValue) {
	e.attributes().set(kv)
}

// DeleteAttribute does what Span.DeleteAttribute does.
func (e Event) DeleteAttribute(key string) {
	e.attributes().remove(key)
}

// SetName replaces the name.
func (e Event) SetName(name string) {
	edit := e.c.r.touch(e.c.owner())
	edit.named, edit.name = true, valid(name)
}

func (e Event) attributes() *attributes { return e.c.attributes(field.EventAttributes) }

// Link is a view of one link of a span. Its reads see the edits recorded so
// far, by any view of the same link.
type Link struct{ c child }

// TraceID is zero if it has not 16 bytes.
func (l Link) TraceID() [16]byte { return traceID(l.c.r.content(l.c.p, field.LinkTraceID)) }

// SpanID is zero if it has not 8 bytes.
func (l Link) SpanID() [8]byte { return spanID(l.c.r.content(l.c.p, field.LinkSpanID)) }

// TraceState is the W3C tracestate header, "" if there is none.
func (l Link) TraceState() string { return string(l.c.r.content(l.c.p, field.LinkTraceState)) }

// Flags are as Span.Flags, of the linked span.
func (l Link) Flags() uint32 {
	return uint32(l.c.r.number(l.c.p, field.LinkFlags, protowire.Fixed32Type))
}

// Attribute finds an attribute by its key; of several the last.
func (l Link) Attribute(key string) (Value, bool) {
	return l.attributes().find(key)
}

// Attributes goes through the attributes as they stand, those that were added
// at the end. Edits are allowed meanwhile.
func (l Link) Attributes() iter.Seq2[string, Value] { return l.attributes().all() }

// DroppedAttributes is how many attributes the SDK left out for its limits.
func (l Link) DroppedAttributes() uint32 { return l.c.r.count(l.c.p, field.LinkDroppedAttributes) }

// SetAttribute does what Span.SetAttribute does.
func (l Link) SetAttribute(kv attribute.KeyValue) {
	l.attributes().set(kv)
}

// DeleteAttribute does what Span.DeleteAttribute does.
func (l Link) DeleteAttribute(key string) {
	l.attributes().remove(key)
}

func (l Link) attributes() *attributes { return l.c.attributes(field.LinkAttributes) }

// child is a view of one event or link.
type child struct {
	r    *Request
	span int
	at   int    // as in childEdit
	num  uint32 // likewise
	p    part   // its content, as it arrived or was added
}

func (c child) owner() owner { return owner{ofChild, c.span, c.at, c.num} }

// edit is nil if there is none.
func (c child) edit() *edit { return c.r.editOf(c.owner()) }

func (c child) attributes(num uint32) *attributes { return &attributes{c.r, c.p, num, c.owner()} }

// children goes through the span's events or links.
func (s Span) children(num uint32) iter.Seq[child] {
	return func(yield func(child) bool) {
		known := int32(len(s.r.children))
		c := s.part().fields()
		for c.next() {
			if c.is(num) && !yield(child{s.r, s.i, c.at(), num, c.here()}) {
				return
			}
		}
		s.r.note(c.err())
		e := s.edit()
		if e == nil {
			return
		}
		for i := e.firstAdded; i != 0 && i <= known; i = s.r.children[i-1].next {
			a := &s.r.children[i-1]
			if a.num == num && !yield(child{s.r, s.i, a.at, num, part{raw: a.added}}) {
				return
			}
		}
	}
}

// blank gives the Request's writer, empty.
func (r *Request) blank() *Writer {
	r.writer.Reset(maxKeptWriter)
	return &r.writer
}

// keyValues writes a repeated KeyValue field. It does not make kvs escape, as
// the writer's own loop would.
func (r *Request) keyValues(num int, kvs []attribute.KeyValue) {
	for i := len(kvs) - 1; i >= 0; i-- {
		r.scratch = kvs[i]
		r.writer.KeyValue(num, &r.scratch)
	}
	r.scratch = attribute.KeyValue{}
}
