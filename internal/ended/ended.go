// Package ended is what a span was when it ended: how package tracing hands its
// own spans over to the encoder of package sdkspan, which knows neither that
// package nor how it keeps them.
//
//  1. A Holder, which is a span to everybody else, fills its Light, and adds its
//     attributes to it in OTLP's bytes, as they are set. Those that many spans have
//     are not copied.
//  2. It ends. If others have written on it, its Light has a Span then.
//  3. The processors are given the Holder. Who knows of this package reads the
//     Light where it lies; everybody else calls the methods.
//
// It reads nothing and starts nothing. Open this file first, then attributes.go.
package ended

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Span is all that there is to say of a span that has ended, in the fields, and in
// the order, of the SDK's own snapshot (v1.47), so that sdkspan can read one of
// those as one of these.
type Span struct {
	Name                  string
	SpanContext           trace.SpanContext
	Parent                trace.SpanContext
	SpanKind              trace.SpanKind
	StartTime             time.Time
	EndTime               time.Time
	Attributes            []attribute.KeyValue
	Events                []sdktrace.Event
	Links                 []sdktrace.Link
	Status                sdktrace.Status
	ChildSpanCount        int
	DroppedAttributeCount int
	DroppedEventCount     int
	DroppedLinkCount      int
	Resource              *resource.Resource
	InstrumentationScope  instrumentation.Scope
}

// Light is what most spans of package tracing are when they end: all of a Span,
// but for what they have not. It is less than half of one: it is allocated for each
// span, and the encoder reads it on another processor, a cache line at a time.
type Light struct {
	TraceID  trace.TraceID
	SpanID   trace.SpanID
	ParentID trace.SpanID // zero for a root
	// Start and End are Unix times, in nanoseconds.
	Start, End int64
	Name       string
	Origin     *Origin
	// State is the trace's; nil where it is empty.
	State *trace.TraceState
	// Outer is the parent, where that differs from the span by more than its id.
	Outer *trace.SpanContext
	// Shared are attributes that other spans have as well, which come first; an
	// entry may be nil. What one points to never changes.
	Shared [3]*Attributes
	// Attributes are the span's own. They come before those of More.
	Attributes Attributes
	// More has what others have added; nil where nobody has.
	More *More
	// Bytes is the heap that the holder takes itself, with its Attributes, and with
	// those that it shares with few.
	Bytes          int
	ChildSpanCount int32
	Flags          trace.TraceFlags
	Kind           uint8 // a trace.SpanKind
	Code           uint8 // a codes.Code: the status but for its description
}

// Origin is what the spans of a provider have in common.
type Origin struct {
	Resource *resource.Resource
	Scope    instrumentation.Scope
}

// More is what a Light has no place for.
type More struct {
	Description                                                string // of the status
	Attributes                                                 []attribute.KeyValue
	Events                                                     []sdktrace.Event
	Links                                                      []sdktrace.Link
	DroppedAttributeCount, DroppedEventCount, DroppedLinkCount int
}

var nothing More

// Get gives m, which may be nil and then is empty.
func (m *More) Get() *More {
	if m == nil {
		return &nothing
	}
	return m
}

// List gives the attributes that are not those of More.
func (l *Light) List() []attribute.KeyValue {
	var list []attribute.KeyValue
	for _, shared := range l.Shared {
		if shared != nil {
			list = append(list, shared.List()...)
		}
	}
	return append(list, l.Attributes.List()...)
}

// SpanContext is the span's.
func (l *Light) SpanContext() trace.SpanContext { return l.context(l.SpanID) }

// Parent is its parent's; zero for a root.
func (l *Light) Parent() trace.SpanContext {
	switch {
	case l.Outer != nil:
		return *l.Outer
	case l.ParentID.IsValid():
		return l.context(l.ParentID)
	}
	return trace.SpanContext{}
}

func (l *Light) context(id trace.SpanID) trace.SpanContext {
	cfg := trace.SpanContextConfig{TraceID: l.TraceID, SpanID: id, TraceFlags: l.Flags}
	if l.State != nil {
		cfg.TraceState = *l.State
	}
	return trace.NewSpanContext(cfg)
}

// Status is the span's.
func (l *Light) Status() sdktrace.Status {
	return sdktrace.Status{Code: codes.Code(l.Code), Description: l.More.Get().Description}
}

// Fill makes f what l is, but for the attributes of [Light.List].
func (l *Light) Fill(f *Span) {
	f.Name, f.SpanContext, f.Parent, f.SpanKind = l.Name, l.SpanContext(), l.Parent(), trace.SpanKind(l.Kind)
	f.StartTime, f.EndTime, f.Status, f.ChildSpanCount = time.Unix(0, l.Start), time.Unix(0, l.End), l.Status(), int(l.ChildSpanCount)
	f.Resource, f.InstrumentationScope = l.Origin.Resource, l.Origin.Scope
	more := l.More.Get()
	f.Attributes, f.Events, f.Links = more.Attributes, more.Events, more.Links
	f.DroppedAttributeCount, f.DroppedEventCount, f.DroppedLinkCount = more.DroppedAttributeCount, more.DroppedEventCount, more.DroppedLinkCount
}

// Only is a processor that has nothing to do as spans start: it is not told of it, and
// who starts them has no need to expect it to write on them.
type Only struct{ sdktrace.SpanProcessor }

// Holder is a span that keeps a Light. Safe for concurrent use.
type Holder interface {
	sdktrace.ReadOnlySpan
	// Ended is what the span was when it ended, never to be changed by anybody;
	// nil before that.
	Ended() *Light
}
