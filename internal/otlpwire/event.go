package otlpwire

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/otlpwire/field"
)

// Event is a view of one event of a span.
type Event struct {
	r *Request
	p part
}

// Time is in nanoseconds since the Unix epoch.
func (e Event) Time() uint64 { return e.r.number(e.p, field.EventTime, protowire.Fixed64Type) }

// Name is the event's name.
func (e Event) Name() string { return e.r.intern(e.r.content(e.p, field.EventName)) }

// Attribute finds an attribute by its key; of several the last.
func (e Event) Attribute(key string) (Value, bool) { return e.attributes().find(key) }

// Attributes goes through the attributes in order.
func (e Event) Attributes() iter.Seq2[string, Value] { return e.attributes().all() }

// DroppedAttributes is how many attributes the SDK left out for its limits.
func (e Event) DroppedAttributes() uint32 { return e.r.count(e.p, field.EventDroppedAttributes) }

func (e Event) attributes() attributes { return attributes{e.r, e.p, field.EventAttributes, nil} }

// Link is a view of one link of a span.
type Link struct {
	r *Request
	p part
}

// TraceID is zero if it has not 16 bytes.
func (l Link) TraceID() [16]byte { return traceID(l.r.content(l.p, field.LinkTraceID)) }

// SpanID is zero if it has not 8 bytes.
func (l Link) SpanID() [8]byte { return spanID(l.r.content(l.p, field.LinkSpanID)) }

// TraceState is the W3C tracestate header, "" if there is none.
func (l Link) TraceState() string { return string(l.r.content(l.p, field.LinkTraceState)) }

// Flags are as Span.Flags, of the linked span.
func (l Link) Flags() uint32 { return uint32(l.r.number(l.p, field.LinkFlags, protowire.Fixed32Type)) }

// Attribute finds an attribute by its key; of several the last.
func (l Link) Attribute(key string) (Value, bool) { return l.attributes().find(key) }

// Attributes goes through the attributes in order.
func (l Link) Attributes() iter.Seq2[string, Value] { return l.attributes().all() }

// DroppedAttributes is how many attributes the SDK left out for its limits.
func (l Link) DroppedAttributes() uint32 { return l.r.count(l.p, field.LinkDroppedAttributes) }

func (l Link) attributes() attributes { return attributes{l.r, l.p, field.LinkAttributes, nil} }
