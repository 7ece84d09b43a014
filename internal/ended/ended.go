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
// but for what they have not. It is smaller by half, with its attributes.
type Light struct {
	Name           string
	SpanContext    trace.SpanContext
	Parent         trace.SpanContext
	SpanKind       trace.SpanKind
	StartTime      time.Time
	EndTime        time.Time
	Status         sdktrace.Status
	ChildSpanCount int
	Origin         *Origin
	// Shared are attributes that other spans have as well, which come first; an
	// entry may be nil. What one points to never changes.
	Shared [3]*Attributes
	// Attributes are the span's own. They come before those of More.
	Attributes Attributes
	// More has what others have added; nil where nobody has.
	More *More
	// Bytes is the heap that the holder takes itself, with its Attributes, and with
	// those that it shares with few.
	Bytes int
}

// Origin is what the spans of a provider have in common.
type Origin struct {
	Resource *resource.Resource
	Scope    instrumentation.Scope
}

// More is what a Light has no place for.
type More struct {
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

// Fill makes f what l is, but for the attributes of [Light.List].
func (l *Light) Fill(f *Span) {
	f.Name, f.SpanContext, f.Parent, f.SpanKind = l.Name, l.SpanContext, l.Parent, l.SpanKind
	f.StartTime, f.EndTime, f.Status, f.ChildSpanCount = l.StartTime, l.EndTime, l.Status, l.ChildSpanCount
	f.Resource, f.InstrumentationScope = l.Origin.Resource, l.Origin.Scope
	more := l.More.Get()
	f.Attributes, f.Events, f.Links = more.Attributes, more.Events, more.Links
	f.DroppedAttributeCount, f.DroppedEventCount, f.DroppedLinkCount = more.DroppedAttributeCount, more.DroppedEventCount, more.DroppedLinkCount
}

// Holder is a span that keeps a Light. Safe for concurrent use.
type Holder interface {
	sdktrace.ReadOnlySpan
	// Ended is what the span was when it ended, never to be changed by anybody;
	// nil before that.
	Ended() *Light
}
