package pluginsdk

import (
	"context"
	"iter"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire"
)

// message is embedded in Span, Event, Link, Resource and Scope. It reads and edits the
// attributes in the encoded form of any of them.
type message struct{ view otlpwire.View }

// Attribute returns the value of the attribute with this key, and whether there is one.
// If the key occurs several times, the last value counts, as in OpenTelemetry's SDKs.
func (m message) Attribute(key attribute.Key) (attribute.Value, bool) {
	return m.view.Attribute(string(key))
}

// Attributes returns the attributes in the sender's order, followed by added attributes.
// If the sender wrote a key several times, it is returned as often. The attributes may be
// edited during the iteration.
func (m message) Attributes() iter.Seq[attribute.KeyValue] { return m.view.Attributes() }

// DroppedAttributes returns the number of attributes that the SDK of the sending program
// left out because of its limits.
func (m message) DroppedAttributes() int { return int(m.view.DroppedAttributes()) }

// SetAttributes adds attributes. Each replaces any attribute with the same key. An edit
// of a [Resource] or a [Scope] applies to all its spans.
func (m message) SetAttributes(kvs ...attribute.KeyValue) {
	for _, kv := range kvs {
		m.view.SetAttribute(kv)
	}
}

// DeleteAttributes removes the attributes with these keys. It ignores keys that do not
// exist. An edit of a [Resource] or a [Scope] applies to all its spans.
func (m message) DeleteAttributes(keys ...attribute.Key) {
	for _, key := range keys {
		m.view.DeleteAttribute(string(key))
	}
}

// Span is one finished span of a [Batch]. It is a view of the batch's bytes, and is
// passed by value. Each read walks the encoded span and decodes one field. Edits are
// recorded: later reads return the new values, and the bytes change only when the batch
// is encoded. Fields that this package does not know are kept.
//
// Ids, times and kind cannot be edited. Events and links can be edited and added, but not
// removed. Values that were read may be kept. The span itself may be used only as long as
// its batch, and not concurrently with it. Two Spans are equal (==) if they are views of
// the same span of the same batch.
//
// The zero Span must not be used.
type Span struct{ message }

// EachSpan returns the constructor of a processor that calls f for each span of a batch.
// f may edit or drop the span. It is called for one span at a time of a batch, but
// concurrently for several batches. name is the processor's name, see [Named]. After the
// first error of f, the processor returns this error, and the host sends the whole batch
// again later. Return [Permanent] for an error that a retry would not change.
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

func (s Span) raw() otlpwire.Span { return otlpwire.Span{View: s.view} }

// TraceID returns the id of the span's trace. It is zero if the sender set none.
func (s Span) TraceID() trace.TraceID { return s.raw().TraceID() }

// SpanID returns the span's id. It is zero if the sender set none.
func (s Span) SpanID() trace.SpanID { return s.raw().SpanID() }

// ParentID returns the id of the parent span. It is zero for a root span.
func (s Span) ParentID() trace.SpanID { return s.raw().ParentID() }

// ParentIsRemote reports whether the parent is a span of another process. known is false
// if the sender did not record that.
func (s Span) ParentIsRemote() (remote, known bool) { return isRemote(s.raw().Flags()) }

// TraceFlags returns the span's flags of W3C Trace Context, such as "sampled".
func (s Span) TraceFlags() trace.TraceFlags { return w3cFlags(s.raw().Flags()) }

// TraceState returns the span's W3C tracestate. It is empty if there is none or if it is
// malformed.
func (s Span) TraceState() trace.TraceState { return traceState(s.raw().TraceState()) }

// Name returns the span's name.
func (s Span) Name() string { return s.view.Name() }

// Kind returns the span's kind. It is SpanKindUnspecified if the sender did not set the
// kind.
func (s Span) Kind() trace.SpanKind { return trace.SpanKind(s.raw().Kind()) }

// StartTime returns the time at which the span started, in UTC, with nanoseconds.
func (s Span) StartTime() time.Time { return otlpwire.UnixTime(s.raw().Start()) }

// EndTime returns the time at which the span ended, in UTC, with nanoseconds.
func (s Span) EndTime() time.Time { return otlpwire.UnixTime(s.raw().End()) }

// Status returns the span's status code and its description.
func (s Span) Status() (codes.Code, string) {
	code, message := s.raw().Status()
	return otlpwire.StatusCode(code), message
}

// Events returns the events in the sender's order, followed by added events. They may be
// edited during the iteration. An event that is added during the iteration is not
// returned.
func (s Span) Events() iter.Seq[Event] {
	return views(s.raw().Events(), func(raw otlpwire.Event) Event { return Event{message{raw.View}} })
}

// DroppedEvents returns the number of events that the SDK of the sending program left out
// because of its limits.
func (s Span) DroppedEvents() int { return int(s.raw().DroppedEvents()) }

// Links returns the links in the sender's order, followed by added links. The rules of
// [Span.Events] apply.
func (s Span) Links() iter.Seq[Link] {
	return views(s.raw().Links(), func(raw otlpwire.Link) Link { return Link{message{raw.View}} })
}

// DroppedLinks returns the number of links that the SDK of the sending program left out
// because of its limits.
func (s Span) DroppedLinks() int { return int(s.raw().DroppedLinks()) }

// Resource returns the resource that produced the span, such as a service. Several spans
// of a batch may share it.
func (s Span) Resource() Resource { return Resource{message{s.raw().Resource().View}} }

// Scope returns the instrumentation scope that created the span.
func (s Span) Scope() Scope { return Scope{message{s.raw().Scope().View}} }

// SetName replaces the span's name.
func (s Span) SetName(name string) { s.view.SetName(name) }

// SetStatus replaces the status code and the description. Unlike a span of
// OpenTelemetry's SDKs, it accepts any change of the code, even from Ok to Unset.
func (s Span) SetStatus(code codes.Code, description string) {
	s.raw().SetStatus(otlpwire.StatusNumber(code), description)
}

// AddEvent adds an event after the existing events, for example to record an edit of the
// span. A time before 1970, such as the zero time, becomes the beginning of 1970. No two
// attributes should have the same key.
func (s Span) AddEvent(name string, at time.Time, attrs ...attribute.KeyValue) {
	s.raw().AddEvent(name, otlpwire.UnixNano(at), attrs...)
}

// AddLink adds a link after the existing links. It does not check whether the span
// context is valid. No two attributes should have the same key.
func (s Span) AddLink(link trace.Link) {
	to := link.SpanContext
	flags := uint32(to.TraceFlags()) | otlpwire.FlagRemoteKnown
	if to.IsRemote() {
		flags |= otlpwire.FlagRemote
	}
	s.raw().AddLink(to.TraceID(), to.SpanID(), to.TraceState().String(), flags, link.Attributes...)
}

// Drop removes the span from the batch. The host counts the span as filtered by this
// processor. Drop cannot be undone.
func (s Span) Drop() { s.raw().Drop() }

// Event is an event of a span. Like a [Span], it is a view of the batch's bytes, with the
// same rules.
type Event struct{ message }

// Name returns the event's name, such as "exception".
func (e Event) Name() string { return e.view.Name() }

// Time returns the event's time in UTC, with nanoseconds.
func (e Event) Time() time.Time { return otlpwire.UnixTime(otlpwire.Event{View: e.view}.Time()) }

// SetName replaces the event's name.
func (e Event) SetName(name string) { e.view.SetName(name) }

// Link is a link from a span to another span. Like a [Span], it is a view of the batch's
// bytes, with the same rules.
type Link struct{ message }

func (l Link) raw() otlpwire.Link { return otlpwire.Link{View: l.view} }

// TraceID returns the trace id of the linked span.
func (l Link) TraceID() trace.TraceID { return l.raw().TraceID() }

// SpanID returns the span id of the linked span.
func (l Link) SpanID() trace.SpanID { return l.raw().SpanID() }

// TraceFlags returns the W3C trace flags of the linked span.
func (l Link) TraceFlags() trace.TraceFlags { return w3cFlags(l.raw().Flags()) }

// IsRemote reports whether the linked span is a span of another process. known is false
// if the sender did not record that.
func (l Link) IsRemote() (remote, known bool) { return isRemote(l.raw().Flags()) }

// TraceState returns the W3C tracestate of the linked span. It is empty if there is none
// or if it is malformed.
func (l Link) TraceState() trace.TraceState { return traceState(l.raw().TraceState()) }

// Resource is the producer of spans, such as a service or a pod. Like a [Span], it is a
// view of the batch's bytes, with the same rules. Two Resources are equal (==) if they
// are the same resource of the same batch, not if their content is equal.
type Resource struct{ message }

// SchemaURL returns the resource's schema URL. It is empty if the sender set none.
func (r Resource) SchemaURL() string { return otlpwire.Resource{View: r.view}.SchemaURL() }

// Scope is the instrumentation scope that created spans, such as a library. Like a
// [Span], it is a view of the batch's bytes, with the same rules. Two Scopes are equal
// (==) if they are the same scope of the same batch, not if their content is equal.
type Scope struct{ message }

// Name returns the scope's name, which is often the path of a package.
func (s Scope) Name() string { return s.view.Name() }

// Version returns the scope's version. It is empty if the sender set none.
func (s Scope) Version() string { return otlpwire.Scope{View: s.view}.Version() }

// SchemaURL returns the scope's schema URL. It is empty if the sender set none.
func (s Scope) SchemaURL() string { return otlpwire.Scope{View: s.view}.SchemaURL() }

func views[Raw, V any](seq iter.Seq[Raw], convert func(Raw) V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for raw := range seq {
			if !yield(convert(raw)) {
				return
			}
		}
	}
}

func isRemote(flags uint32) (remote, known bool) {
	return flags&otlpwire.FlagRemote != 0, flags&otlpwire.FlagRemoteKnown != 0
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
