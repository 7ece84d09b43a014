// Package ended is what a span was when it ended: how package tracing hands its
// own spans over to the encoder of package sdkspan, which knows neither that
// package nor how it keeps them.
//
//  1. A Holder, which is a span to everybody else, ends and fills its Span.
//  2. The processors are given the Holder. Who knows of this package reads the
//     Span where it lies; everybody else calls the methods.
//
// It reads nothing and starts nothing. It has this one file.
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

// Holder is a span that keeps a Span. Safe for concurrent use.
type Holder interface {
	sdktrace.ReadOnlySpan
	// Ended is what the span was when it ended, never to be changed by anybody;
	// nil before that.
	Ended() *Span
	// UnseenHeap is how many bytes an ended span holds besides what Ended shows.
	UnseenHeap() int
}
