package otlpwire

import (
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Span is a view of one span of a Request. Its reads see the edits recorded so
// far. A field that is absent reads as zero; each read walks the span. Reads
// and edits of a dropped span are allowed.
// Fields: https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
type Span struct {
	r *Request
	i int
}

// TraceID is zero if it has not 16 bytes.
func (s Span) TraceID() [16]byte { return traceID(s.r.content(s.part(), field.SpanTraceID)) }

// SpanID is zero if it has not 8 bytes.
func (s Span) SpanID() [8]byte { return spanID(s.r.content(s.part(), field.SpanSpanID)) }

// ParentID is zero for a root span, or if it has not 8 bytes.
func (s Span) ParentID() [8]byte { return spanID(s.r.content(s.part(), field.SpanParentID)) }

// TraceState is the W3C tracestate header, "" if there is none.
func (s Span) TraceState() string { return string(s.r.content(s.part(), field.SpanTraceState)) }

// Flags are the W3C trace flags in the low 8 bits; bit 8 says that bit 9 is
// known, bit 9 that the parent is remote.
func (s Span) Flags() uint32 {
	return uint32(s.r.number(s.part(), field.SpanFlags, protowire.Fixed32Type))
}

// Name is the span's name.
func (s Span) Name() string {
	if e := s.edit(); e != nil && e.named {
		return e.name
	}
	return s.r.intern(s.r.content(s.part(), field.SpanName))
}

// Kind is OTLP's number: 0 unspecified, 1 internal, 2 server, 3 client,
// 4 producer, 5 consumer, the same numbers as trace.SpanKind.
func (s Span) Kind() int32 { return int32(s.r.number(s.part(), field.SpanKind, protowire.VarintType)) }

// Start is in nanoseconds since the Unix epoch.
func (s Span) Start() uint64 { return s.r.number(s.part(), field.SpanStart, protowire.Fixed64Type) }

// End is in nanoseconds since the Unix epoch.
func (s Span) End() uint64 { return s.r.number(s.part(), field.SpanEnd, protowire.Fixed64Type) }

// Status gives OTLP's code, 0 unset, 1 ok, 2 error (the API's codes.Code has 1
// and 2 the other way round), and the message.
func (s Span) Status() (code int32, message string) {
	if e := s.edit(); e != nil && e.statused {
		return e.code, e.message
	}
	status := s.r.message(s.part(), field.SpanStatus)
	code = int32(s.r.number(status, field.StatusCode, protowire.VarintType))
	return code, string(s.r.content(status, field.StatusMessage))
}

// Attribute finds an attribute by its key; of several with the same key the
// last.
func (s Span) Attribute(key string) (Value, bool) {
	return s.attributes().find(key)
}

// Attributes goes through the attributes as they stand, those that were added
// at the end. A key that stands several times in the bytes comes several times.
// Edits are allowed meanwhile.
func (s Span) Attributes() iter.Seq2[string, Value] { return s.attributes().all() }

// Events goes through the span's events in order, those that were added at the
// end. Edits are allowed meanwhile; an event that is added meanwhile does not
// come.
func (s Span) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for c := range s.children(field.SpanEvents) {
			if !yield(Event{c}) {
				return
			}
		}
	}
}

// Links goes through the span's links, as Events does through the events.
func (s Span) Links() iter.Seq[Link] {
	return func(yield func(Link) bool) {
		for c := range s.children(field.SpanLinks) {
			if !yield(Link{c}) {
				return
			}
		}
	}
}

// DroppedAttributes is how many attributes the SDK left out for its limits.
func (s Span) DroppedAttributes() uint32 { return s.r.count(s.part(), field.SpanDroppedAttributes) }

// DroppedEvents is how many events the SDK left out for its limits.
func (s Span) DroppedEvents() uint32 { return s.r.count(s.part(), field.SpanDroppedEvents) }

// DroppedLinks is how many links the SDK left out for its limits.
func (s Span) DroppedLinks() uint32 { return s.r.count(s.part(), field.SpanDroppedLinks) }

// Resource is the resource that the span belongs to.
func (s Span) Resource() Resource {
	return Resource{s.r, int(s.r.scopes[s.r.spans[s.i].scope].resource)}
}

// Scope is the instrumentation scope that the span belongs to.
func (s Span) Scope() Scope { return Scope{s.r, int(s.r.spans[s.i].scope)} }

// SetAttribute replaces the attribute of that key, whole, or adds one. If the
// key stands several times, one is left. Text that is not valid UTF-8 gets
// U+FFFD in its place, here as in every edit.
func (s Span) SetAttribute(kv attribute.KeyValue) {
	s.attributes().set(kv)
}

// DeleteAttribute removes every attribute of that key. It is no edit if there
// is none.
func (s Span) DeleteAttribute(key string) {
	s.attributes().remove(key)
}

// SetName replaces the name.
func (s Span) SetName(name string) {
	e := s.touch()
	e.named, e.name = true, valid(name)
}

// SetStatus replaces code (OTLP's number, see Status) and message.
func (s Span) SetStatus(code int32, message string) {
	e := s.touch()
	e.statused, e.code, e.message = true, code, valid(message)
}

// AddEvent adds an event at the end, at a time in nanoseconds since the Unix
// epoch. Attributes are written as they are given, whatever their keys.
func (s Span) AddEvent(name string, at uint64, kvs ...attribute.KeyValue) {
	w := s.r.blank()
	s.r.keyValues(field.EventAttributes, kvs)
	w.Text(field.EventName, name)
	w.Fixed64(field.EventTime, at)
	s.r.addChild(s.i, field.SpanEvents, s.r.keep(w.Bytes()))
}

// AddLink adds a link at the end. state is a W3C tracestate header, flags are
// as those of Link.Flags; attributes are as for AddEvent.
func (s Span) AddLink(traceID [16]byte, spanID [8]byte, state string, flags uint32, kvs ...attribute.KeyValue) {
	w := s.r.blank()
	w.Fixed32(field.LinkFlags, flags)
	s.r.keyValues(field.LinkAttributes, kvs)
	w.Text(field.LinkTraceState, state)
	w.Content(field.LinkSpanID, spanID[:])
	w.Content(field.LinkTraceID, traceID[:])
	s.r.addChild(s.i, field.SpanLinks, s.r.keep(w.Bytes()))
}

// Drop leaves the span out of what AppendTo writes. It cannot be undone.
func (s Span) Drop() {
	e := s.touch()
	if e.dropped {
		return
	}
	e.dropped = true
	scope := &s.r.scopes[s.r.spans[s.i].scope]
	scope.alive--
	s.r.resources[scope.resource].alive--
	s.r.dropped++
}

// Dropped tells whether Drop was called.
func (s Span) Dropped() bool {
	e := s.edit()
	return e != nil && e.dropped
}

func (s Span) part() part {
	entry := &s.r.spans[s.i]
	return s.r.part(entry.start, entry.end)
}

func (s Span) attributes() *attributes {
	return &attributes{s.r, s.part(), field.SpanAttributes, s.owner()}
}

// edit is nil if there is none.
func (s Span) edit() *edit { return s.r.editAt(s.r.spans[s.i].edit) }

// touch gives the span's edit, a new one if it had none.
func (s Span) touch() *edit { return s.r.touch(s.owner()) }

func (s Span) owner() owner { return owner{kind: ofSpan, i: s.i} }

// content is the last field of that number, as bytes. Nil if there is none.
func (r *Request) content(p part, num uint32) []byte {
	var found []byte
	c := p.fields()
	for c.next() {
		if c.is(num) {
			found = c.content()
		}
	}
	r.note(c.err())
	return found
}

// message is the content of a message field; several merge into one.
func (r *Request) message(p part, num uint32) part {
	var found part
	c := p.fields()
	for c.next() {
		if c.is(num) {
			found = found.join(c.here())
		}
	}
	r.note(c.err())
	return found
}

// number is the last field of that number and type.
func (r *Request) number(p part, num uint32, typ protowire.Type) uint64 {
	var found uint64
	c := p.fields()
	for c.next() {
		if c.num == num && c.typ == typ {
			found = c.bits
		}
	}
	r.note(c.err())
	return found
}

func (r *Request) count(p part, num uint32) uint32 {
	return uint32(r.number(p, num, protowire.VarintType))
}

func traceID(b []byte) (id [16]byte) {
	if len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

func spanID(b []byte) (id [8]byte) {
	if len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}
