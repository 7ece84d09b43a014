package pluginsdk

import (
	"context"
	"iter"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Span is one finished span of a [Batch]: a view over its bytes, to be passed
// by value. Reading one field walks the encoded span and decodes nothing else.
// Edits are recorded, seen by reads that come after, and applied once, when
// the batch is encoded; fields that this package does not know survive.
//
// Ids, times and kind cannot be edited; events and links can be edited and
// added, not taken away. A span is for the goroutine of its batch and lives as
// long. Two values are equal if they are
// the same span of the same batch.
//
// The zero Span is no span and must not be used.
type Span struct{ raw otlpwire.Span }

// EachSpan makes a processor of a function over spans, which may edit or drop
// each. name is as in [Named]. An error has the whole batch sent again, and
// again fail; return [Permanent] for what will not get better, see [Processor].
func EachSpan(name string, f func(Span) error) NewProcessor {
	return ProcessorFunc(name, func(_ context.Context, b *Batch) error {
		for span := range b.Spans() {
			if err := f(span); err != nil {
				return err
			}
		}
		return nil
	})
}

// TraceID is the trace that the span belongs to.
func (s Span) TraceID() trace.TraceID { return s.raw.TraceID() }

// SpanID is the span's own id.
func (s Span) SpanID() trace.SpanID { return s.raw.SpanID() }

// ParentID is the parent's span id; it is not valid for a root span.
func (s Span) ParentID() trace.SpanID { return s.raw.ParentID() }

// ParentIsRemote tells whether the parent is a span of another process. known
// is false where the sender did not say.
func (s Span) ParentIsRemote() (remote, known bool) {
	flags := s.raw.Flags()
	return flags&flagRemote != 0, flags&flagRemoteKnown != 0
}

// TraceFlags are those of W3C Trace Context.
func (s Span) TraceFlags() trace.TraceFlags { return w3cFlags(s.raw.Flags()) }

// TraceState is the W3C tracestate, empty if there is none or it is malformed.
func (s Span) TraceState() trace.TraceState { return traceState(s.raw.TraceState()) }

// Name is the span's name.
func (s Span) Name() string { return s.raw.Name() }

// Kind is SpanKindUnspecified where the sender did not say.
func (s Span) Kind() trace.SpanKind { return trace.SpanKind(s.raw.Kind()) }

// StartTime is in UTC, to the nanosecond.
func (s Span) StartTime() time.Time { return unixTime(s.raw.Start()) }

// EndTime is in UTC, to the nanosecond.
func (s Span) EndTime() time.Time { return unixTime(s.raw.End()) }

// Status is the status code and, for errors, the description.
func (s Span) Status() (codes.Code, string) {
	code, message := s.raw.Status()
	switch code {
	case otlpOK:
		return codes.Ok, message
	case otlpError:
		return codes.Error, message
	}
	return codes.Unset, message
}

// Attribute is the value of key, and whether there is one. Of several the last
// counts, as in OpenTelemetry's SDKs.
func (s Span) Attribute(key attribute.Key) (attribute.Value, bool) {
	return decoded(s.raw.Attribute(string(key)))
}

// Attributes goes through the attributes in order, those set here at the end.
func (s Span) Attributes() iter.Seq[attribute.KeyValue] { return keyValues(s.raw.Attributes()) }

// DroppedAttributes is how many attributes the sender left out for its limits.
func (s Span) DroppedAttributes() int { return int(s.raw.DroppedAttributes()) }

// Events goes through the events in order, those added here at the end. Edits
// are allowed meanwhile; an event that is added meanwhile does not come.
func (s Span) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for raw := range s.raw.Events() {
			if !yield(Event{raw}) {
				return
			}
		}
	}
}

// DroppedEvents is how many events the sender left out for its limits.
func (s Span) DroppedEvents() int { return int(s.raw.DroppedEvents()) }

// Links goes through the links, as [Span.Events] does through the events.
func (s Span) Links() iter.Seq[Link] {
	return func(yield func(Link) bool) {
		for raw := range s.raw.Links() {
			if !yield(Link{raw}) {
				return
			}
		}
	}
}

// DroppedLinks is how many links the sender left out for its limits.
func (s Span) DroppedLinks() int { return int(s.raw.DroppedLinks()) }

// Resource is what produced the span. Spans of a batch share it.
func (s Span) Resource() Resource { return Resource{s.raw.Resource()} }

// Scope is the instrumentation that made the span.
func (s Span) Scope() Scope { return Scope{s.raw.Scope()} }

// SetName replaces the name.
func (s Span) SetName(name string) { s.raw.SetName(name) }

// SetStatus replaces code and description. Unlike OpenTelemetry's SDKs it
// knows no order among codes: Ok can be set back to Unset.
func (s Span) SetStatus(code codes.Code, description string) {
	otlp := int32(otlpUnset)
	switch code {
	case codes.Ok:
		otlp = otlpOK
	case codes.Error:
		otlp = otlpError
	}
	s.raw.SetStatus(otlp, description)
}

// SetAttributes adds attributes, each in place of one with the same key.
func (s Span) SetAttributes(kvs ...attribute.KeyValue) {
	for _, kv := range kvs {
		s.raw.SetAttribute(kv)
	}
}

// DeleteAttributes removes attributes; a key that is not there is fine.
func (s Span) DeleteAttributes(keys ...attribute.Key) {
	for _, key := range keys {
		s.raw.DeleteAttribute(string(key))
	}
}

// AddEvent adds an event at the end, such as a mark of what was done to the
// span. A time before 1970 becomes that, the zero one too. attrs should have no
// key twice.
func (s Span) AddEvent(name string, at time.Time, attrs ...attribute.KeyValue) {
	s.raw.AddEvent(name, unixNano(at), attrs...)
}

// AddLink adds a link at the end, with everything that link has. It does not
// ask whether the span that it points to can be valid. Attributes are as for
// [Span.AddEvent].
func (s Span) AddLink(link trace.Link) {
	to := link.SpanContext
	flags := uint32(to.TraceFlags()) | flagRemoteKnown
	if to.IsRemote() {
		flags |= flagRemote
	}
	s.raw.AddLink(to.TraceID(), to.SpanID(), to.TraceState().String(), flags, link.Attributes...)
}

// Drop takes the span out of the batch. The host counts it as filtered by the
// processor that dropped it. It cannot be undone.
func (s Span) Drop() { s.raw.Drop() }

// Event is something that happened while a span ran: a view, as [Span].
type Event struct{ raw otlpwire.Event }

// Name is the event's name: "exception", say.
func (e Event) Name() string { return e.raw.Name() }

// Time is in UTC, to the nanosecond.
func (e Event) Time() time.Time { return unixTime(e.raw.Time()) }

// Attribute is as [Span.Attribute].
func (e Event) Attribute(key attribute.Key) (attribute.Value, bool) {
	return decoded(e.raw.Attribute(string(key)))
}

// Attributes goes through the event's attributes in order.
func (e Event) Attributes() iter.Seq[attribute.KeyValue] { return keyValues(e.raw.Attributes()) }

// SetName replaces the name.
func (e Event) SetName(name string) { e.raw.SetName(name) }

// SetAttributes is as [Span.SetAttributes].
func (e Event) SetAttributes(kvs ...attribute.KeyValue) {
	for _, kv := range kvs {
		e.raw.SetAttribute(kv)
	}
}

// DeleteAttributes is as [Span.DeleteAttributes].
func (e Event) DeleteAttributes(keys ...attribute.Key) {
	for _, key := range keys {
		e.raw.DeleteAttribute(string(key))
	}
}

// DroppedAttributes is as [Span.DroppedAttributes].
func (e Event) DroppedAttributes() int { return int(e.raw.DroppedAttributes()) }

// Link points from a span to another: a view, as [Span].
type Link struct{ raw otlpwire.Link }

// TraceID is the linked span's trace.
func (l Link) TraceID() trace.TraceID { return l.raw.TraceID() }

// SpanID is the linked span's own id.
func (l Link) SpanID() trace.SpanID { return l.raw.SpanID() }

// TraceFlags are those of the linked span.
func (l Link) TraceFlags() trace.TraceFlags { return w3cFlags(l.raw.Flags()) }

// IsRemote tells whether the linked span is one of another process. known is
// false where the sender did not say.
func (l Link) IsRemote() (remote, known bool) {
	flags := l.raw.Flags()
	return flags&flagRemote != 0, flags&flagRemoteKnown != 0
}

// TraceState is that of the linked span.
func (l Link) TraceState() trace.TraceState { return traceState(l.raw.TraceState()) }

// Attribute is as [Span.Attribute].
func (l Link) Attribute(key attribute.Key) (attribute.Value, bool) {
	return decoded(l.raw.Attribute(string(key)))
}

// Attributes goes through the link's attributes in order.
func (l Link) Attributes() iter.Seq[attribute.KeyValue] { return keyValues(l.raw.Attributes()) }

// SetAttributes is as [Span.SetAttributes].
func (l Link) SetAttributes(kvs ...attribute.KeyValue) {
	for _, kv := range kvs {
		l.raw.SetAttribute(kv)
	}
}

// DeleteAttributes is as [Span.DeleteAttributes].
func (l Link) DeleteAttributes(keys ...attribute.Key) {
	for _, key := range keys {
		l.raw.DeleteAttribute(string(key))
	}
}

// DroppedAttributes is as [Span.DroppedAttributes].
func (l Link) DroppedAttributes() int { return int(l.raw.DroppedAttributes()) }

// Resource is what produced spans (a service, a pod): a view, as [Span]. Two
// values are equal if they are the same entry of the same batch.
type Resource struct{ raw otlpwire.Resource }

// Attribute is as [Span.Attribute].
func (r Resource) Attribute(key attribute.Key) (attribute.Value, bool) {
	return decoded(r.raw.Attribute(string(key)))
}

// Attributes goes through the resource's attributes in order.
func (r Resource) Attributes() iter.Seq[attribute.KeyValue] { return keyValues(r.raw.Attributes()) }

// SchemaURL is that of the resource, empty if unknown.
func (r Resource) SchemaURL() string { return r.raw.SchemaURL() }

// SetAttributes adds attributes, each in place of one with the same key, for
// every span of the resource.
func (r Resource) SetAttributes(kvs ...attribute.KeyValue) {
	for _, kv := range kvs {
		r.raw.SetAttribute(kv)
	}
}

// DeleteAttributes removes attributes, for every span of the resource.
func (r Resource) DeleteAttributes(keys ...attribute.Key) {
	for _, key := range keys {
		r.raw.DeleteAttribute(string(key))
	}
}

// Scope is the instrumentation that made spans: a view, as [Span]. Two values
// are equal if they are the same entry of the same batch.
type Scope struct{ raw otlpwire.Scope }

// Name is often a package path.
func (s Scope) Name() string { return s.raw.Name() }

// Version is empty if unknown.
func (s Scope) Version() string { return s.raw.Version() }

// SchemaURL is empty if unknown.
func (s Scope) SchemaURL() string { return s.raw.SchemaURL() }

// Attribute is as [Span.Attribute].
func (s Scope) Attribute(key attribute.Key) (attribute.Value, bool) {
	return decoded(s.raw.Attribute(string(key)))
}

// Attributes goes through the scope's attributes in order.
func (s Scope) Attributes() iter.Seq[attribute.KeyValue] { return keyValues(s.raw.Attributes()) }

// SetAttributes adds attributes, each in place of one with the same key, for
// every span of the scope.
func (s Scope) SetAttributes(kvs ...attribute.KeyValue) {
	for _, kv := range kvs {
		s.raw.SetAttribute(kv)
	}
}

// DeleteAttributes removes attributes, for every span of the scope.
func (s Scope) DeleteAttributes(keys ...attribute.Key) {
	for _, key := range keys {
		s.raw.DeleteAttribute(string(key))
	}
}

// OTLP's numbers that OpenTelemetry's API has otherwise or not at all:
// https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
const (
	otlpUnset = 0
	otlpOK    = 1
	otlpError = 2

	// Whether the parent, or a link's target, is remote, and whether that is
	// known.
	flagRemoteKnown = 1 << 8
	flagRemote      = 1 << 9
)

func decoded(v otlpwire.Value, ok bool) (attribute.Value, bool) {
	if !ok {
		return attribute.Value{}, false
	}
	return v.Attribute(), true
}

func keyValues(seq iter.Seq2[string, otlpwire.Value]) iter.Seq[attribute.KeyValue] {
	return func(yield func(attribute.KeyValue) bool) {
		for key, value := range seq {
			if !yield(attribute.KeyValue{Key: attribute.Key(key), Value: value.Attribute()}) {
				return
			}
		}
	}
}

func w3cFlags(flags uint32) trace.TraceFlags { return trace.TraceFlags(flags & 0xff) }

func traceState(header string) trace.TraceState {
	if header == "" {
		return trace.TraceState{}
	}
	state, err := trace.ParseTraceState(header)
	if err != nil {
		return trace.TraceState{}
	}
	return state
}

// unixNano is OTLP's form of t, 0 before 1970 and what it can hold at most
// after 2262.
func unixNano(t time.Time) uint64 {
	if s := t.Unix(); s < 0 {
		return 0
	} else if s >= math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return uint64(max(0, t.UnixNano()))
}

// unixTime reads OTLP's nanoseconds; those beyond the year 2262 stay there.
func unixTime(nanos uint64) time.Time {
	return time.Unix(0, int64(min(nanos, math.MaxInt64))).UTC()
}
