// Package ended is what a span was when it ended: how package tracing hands its
// own spans over to the encoder of package sdkspan, which knows neither that
// package nor how it keeps them.
//
//  1. A Holder, which is a span to everybody else, fills its Light, and adds its
//     attributes to it in OTLP's bytes, as they are set. What many spans have is in
//     a Like, and not copied.
//  2. It ends. If others have written on it, its Light has a Span then.
//  3. The processors are given the Holder. Who knows of this package reads the
//     Light where it lies; everybody else calls the methods.
//
// It reads nothing and starts nothing. Open this file first, then attributes.go.
package ended

import (
	"time"
	"unicode/utf8"

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
// but for what they have not. It is a third of one: it is allocated for each
// span, and the encoder reads it on another processor, a cache line at a time.
type Light struct {
	TraceID  trace.TraceID
	SpanID   trace.SpanID
	ParentID trace.SpanID // zero for a root
	// Start and End are Unix times, in nanoseconds.
	Start, End int64
	Like       *Like
	// Call is the attributes that all spans of a call have, which come first; may be
	// nil. They never change.
	Call *Attributes
	// Task is what is the call's own in the attribute of Like's template.
	Task uint64
	// Attributes are the span's own. They come before those of More.
	Attributes Attributes
	// More has what others have added; nil where nobody has.
	More *More
	// State is the trace's; nil where it is empty.
	State *trace.TraceState
	// Outer is the parent, where that differs from the span by more than its id.
	Outer *trace.SpanContext
	// Bytes is the heap that the holder takes itself, with its Attributes, and with
	// what it shares with few.
	Bytes uint32
	Flags trace.TraceFlags
	Kind  uint8 // a trace.SpanKind
	Code  uint8 // a codes.Code: the status but for its description
	Whole bool  // it has the attributes of Like.End
}

// Like is what spans that are alike have in common. It never changes.
type Like struct {
	Origin *Origin
	Name   string
	// Start and End are attributes, which come after those of the call. End has those
	// of spans that came to a usual end.
	Start, End Attributes
	// Task is an attribute that comes after these; nil for none.
	Task *Template
	// Odd: the name is not valid UTF-8.
	Odd bool
}

// Named gives what spans have in common that are like those of l, under another name.
func (l Like) Named(name string) *Like {
	l.Name, l.Odd = name, !utf8.ValidString(name)
	return &l
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
func (l *Light) List() []attribute.KeyValue { return l.AppendTo(nil).List() }

// Size is the length of what AppendTo appends.
func (l *Light) Size() int {
	n := len(l.Like.Start) + l.Like.Task.size() + len(l.Attributes)
	if l.Call != nil {
		n += len(*l.Call)
	}
	if l.Whole {
		n += len(l.Like.End)
	}
	return n
}

// AppendTo appends the attributes that are not those of More.
func (l *Light) AppendTo(to Attributes) Attributes {
	if l.Call != nil {
		to = append(to, *l.Call...)
	}
	to = append(to, l.Like.Start...)
	if l.Whole {
		to = append(to, l.Like.End...)
	}
	if l.Like.Task != nil {
		to = l.Like.Task.AppendTo(to, l.Task)
	}
	return append(to, l.Attributes...)
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

// Fill makes f what l is, but for the attributes of [Light.List] and the number of its
// children, which OTLP has no place for.
func (l *Light) Fill(f *Span) {
	f.Name, f.SpanContext, f.Parent, f.SpanKind = l.Like.Name, l.SpanContext(), l.Parent(), trace.SpanKind(l.Kind)
	f.StartTime, f.EndTime, f.Status = time.Unix(0, l.Start), time.Unix(0, l.End), l.Status()
	f.Resource, f.InstrumentationScope = l.Like.Origin.Resource, l.Like.Origin.Scope
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
