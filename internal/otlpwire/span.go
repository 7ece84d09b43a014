package otlpwire

import (
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Span is a view of one span of a Request. A dropped span can be read and edited.
// Fields: https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
type Span struct{ View }

// TraceID returns the trace id, or zero if it does not have 16 bytes.
func (s Span) TraceID() [16]byte { return traceID(s.bytes(field.SpanTraceID)) }

// SpanID returns the span id, or zero if it does not have 8 bytes.
func (s Span) SpanID() [8]byte { return spanID(s.bytes(field.SpanSpanID)) }

// ParentID returns the id of the parent span. It returns zero for a root span, or if the id does
// not have 8 bytes.
func (s Span) ParentID() [8]byte { return spanID(s.bytes(field.SpanParentID)) }

// TraceState returns the value of the W3C tracestate header, or "" if there is none.
func (s Span) TraceState() string { return string(s.bytes(field.SpanTraceState)) }

// Flags returns the W3C trace flags in the low 8 bits. Bit 9 (FlagRemote) reports that the parent
// is remote. It is valid only if bit 8 (FlagRemoteKnown) is set.
func (s Span) Flags() uint32 { return uint32(s.number(field.SpanFlags, protowire.Fixed32Type)) }

// Kind returns OTLP's number: 0 unspecified, 1 internal, 2 server, 3 client,
// 4 producer, 5 consumer. trace.SpanKind has the same numbers.
func (s Span) Kind() int32 { return int32(s.number(field.SpanKind, protowire.VarintType)) }

// Start returns the start time in nanoseconds since the Unix epoch.
func (s Span) Start() uint64 { return s.number(field.SpanStart, protowire.Fixed64Type) }

// End returns the end time in nanoseconds since the Unix epoch.
func (s Span) End() uint64 { return s.number(field.SpanEnd, protowire.Fixed64Type) }

// Status returns the code and the message of the status. The codes are OTLP's: 0 unset, 1 ok, 2
// error. The type codes.Code of OpenTelemetry's API has the numbers 1 and 2 exchanged.
func (s Span) Status() (code int32, message string) {
	if e := s.r.editOf(s.of); e != nil && e.statused {
		return e.code, e.message
	}
	return s.r.status(s.part())
}

// status returns the code and the message of the status in a span's bytes.
func (r *Request) status(span part) (code int32, message string) {
	p := r.message(span, field.SpanStatus)
	code = int32(r.lastNumber(p, field.StatusCode, protowire.VarintType))
	return code, string(r.lastBytes(p, field.StatusMessage))
}

// Events returns the events of the span in order. Added events come last. Edits are allowed during
// the iteration. Events that are added during the iteration are not returned.
func (s Span) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) { s.children(ofEvent, func(v View) bool { return yield(Event{v}) }) }
}

// Links returns the links of the span, in the same way as Events.
func (s Span) Links() iter.Seq[Link] {
	return func(yield func(Link) bool) { s.children(ofLink, func(v View) bool { return yield(Link{v}) }) }
}

// children calls yield for the span's events or links until yield returns false.
func (s Span) children(k kind, yield func(View) bool) {
	known := int32(len(s.r.added))
	c := s.part().fields()
	for c.next() {
		if c.is(forms[k].field) && !yield(View{s.r, owner{k, s.of.i, int32(c.at())}}) {
			return
		}
	}
	s.r.note(c.err())
	e := s.r.editOf(s.of)
	if e == nil {
		return
	}
	for i := e.firstAdded; i != 0 && i <= known; i = s.r.added[i-1].next {
		if a := s.r.added[i-1]; a.of.kind == k && !yield(View{s.r, a.of}) {
			return
		}
	}
}

// Size returns the number of bytes of the span in the request, without the edits.
func (s Span) Size() int {
	e := &s.r.entries[ofSpan][s.of.i]
	return int(e.end - e.start)
}

// DroppedEvents returns the number of events that the sender left out because of its
// limits.
func (s Span) DroppedEvents() uint32 { return s.count(field.SpanDroppedEvents) }

// DroppedLinks returns the number of links that the sender left out because of its
// limits.
func (s Span) DroppedLinks() uint32 { return s.count(field.SpanDroppedLinks) }

// Resource returns the resource of the span.
func (s Span) Resource() Resource {
	scope := &s.r.entries[ofScope][s.r.entries[ofSpan][s.of.i].parent]
	return Resource{View{s.r, owner{kind: ofResource, i: scope.parent}}}
}

// Scope returns the instrumentation scope of the span.
func (s Span) Scope() Scope {
	return Scope{View{s.r, owner{kind: ofScope, i: s.r.entries[ofSpan][s.of.i].parent}}}
}

// SetStatus replaces the code (OTLP's number, see Status) and the message of the status.
func (s Span) SetStatus(code int32, message string) {
	e := s.r.touch(s.of)
	e.statused, e.code, e.message = true, code, valid(message)
}

// AddEvent adds an event after the other events. The time at is in nanoseconds since the Unix
// epoch. All attributes are written, even if some have the same key.
func (s Span) AddEvent(name string, at uint64, kvs ...attribute.KeyValue) {
	w := s.r.emptyWriter()
	s.r.writeAttributes(field.EventAttributes, kvs)
	w.Text(field.EventName, name)
	w.Fixed64(field.EventTime, at)
	s.r.addChild(ofEvent, s, w.Bytes())
}

// AddLink adds a link after the other links. state is the value of a W3C tracestate header. flags
// has the bits of Link.Flags. Attributes are written as by AddEvent.
func (s Span) AddLink(traceID [16]byte, spanID [8]byte, state string, flags uint32, kvs ...attribute.KeyValue) {
	w := s.r.emptyWriter()
	w.Fixed32(field.LinkFlags, flags)
	s.r.writeAttributes(field.LinkAttributes, kvs)
	w.Text(field.LinkTraceState, state)
	w.Content(field.LinkSpanID, spanID[:])
	w.Content(field.LinkTraceID, traceID[:])
	s.r.addChild(ofLink, s, w.Bytes())
}

// Drop removes the span from the result of AppendTo. It cannot be undone.
func (s Span) Drop() {
	if s.Dropped() {
		return
	}
	s.r.touch(s.of)
	s.r.dropped++
	for k, i := ofSpan, s.of.i; ; k-- {
		e := &s.r.entries[k][i]
		e.dropped++
		if k == ofResource {
			return
		}
		i = e.parent
	}
}

// Dropped reports whether Drop was called.
func (s Span) Dropped() bool { return s.r.released || s.r.entries[ofSpan][s.of.i].dropped > 0 }

// Resource is a view of the resource of one ResourceSpans. An edit applies to all spans of
// the ResourceSpans.
type Resource struct{ View }

// SchemaURL returns the schema URL of the ResourceSpans.
func (r Resource) SchemaURL() string {
	return string(r.r.lastBytes(r.r.entryPart(r.of), field.ResourceSpansSchemaURL))
}

// Scope is a view of the instrumentation scope of one ScopeSpans. An edit applies to all
// spans of the ScopeSpans.
type Scope struct{ View }

// Version returns the scope's version, or "" if it is unknown.
func (s Scope) Version() string { return s.r.intern(s.bytes(field.ScopeVersion)) }

// SchemaURL returns the schema URL of the ScopeSpans.
func (s Scope) SchemaURL() string {
	return string(s.r.lastBytes(s.r.entryPart(s.of), field.ScopeSpansSchemaURL))
}

// Event is a view of one event of a span.
type Event struct{ View }

// Time returns the time in nanoseconds since the Unix epoch.
func (e Event) Time() uint64 { return e.number(field.EventTime, protowire.Fixed64Type) }

// Link is a view of one link of a span.
type Link struct{ View }

// TraceID returns the linked trace id, or zero if it does not have 16 bytes.
func (l Link) TraceID() [16]byte { return traceID(l.bytes(field.LinkTraceID)) }

// SpanID returns the linked span id, or zero if it does not have 8 bytes.
func (l Link) SpanID() [8]byte { return spanID(l.bytes(field.LinkSpanID)) }

// TraceState returns the value of the W3C tracestate header, or "" if there is none.
func (l Link) TraceState() string { return string(l.bytes(field.LinkTraceState)) }

// Flags returns the same bits as Span.Flags. FlagRemote is about the linked span.
func (l Link) Flags() uint32 { return uint32(l.number(field.LinkFlags, protowire.Fixed32Type)) }

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
