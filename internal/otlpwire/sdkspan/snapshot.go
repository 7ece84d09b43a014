package sdkspan

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// snapshot is what the SDK makes of a span that has ended, field by field as in
// its package (v1.47), where the type is private and can only be read through
// ReadOnlySpan. Its methods have value receivers, so each call of one through
// the interface copies all of its 408 bytes to the stack, be it for a number:
// some ten nanoseconds, sixteen times a span. So where a span is found to be
// the SDK's, and the SDK's type to be laid out as this one, its fields are read
// where they lie (see, below). They never change, for the span has ended. It
// takes GistOf from 114 to 50 ns and Encoder.Append from 600 to 380 ns.
type snapshot struct {
	name                  string
	spanContext           trace.SpanContext
	parent                trace.SpanContext
	spanKind              trace.SpanKind
	startTime             time.Time
	endTime               time.Time
	attributes            []attribute.KeyValue
	events                []sdktrace.Event
	links                 []sdktrace.Link
	status                sdktrace.Status
	childSpanCount        int
	droppedAttributeCount int
	droppedEventCount     int
	droppedLinkCount      int
	resource              *resource.Resource
	instrumentationScope  instrumentation.Scope
}

// copyOf reads a span that is not the SDK's: a wrapper around one, or a test's.
func copyOf(s sdktrace.ReadOnlySpan) snapshot {
	return snapshot{
		name:                  s.Name(),
		spanContext:           s.SpanContext(),
		parent:                s.Parent(),
		spanKind:              s.SpanKind(),
		startTime:             s.StartTime(),
		endTime:               s.EndTime(),
		attributes:            s.Attributes(),
		events:                s.Events(),
		links:                 s.Links(),
		status:                s.Status(),
		childSpanCount:        s.ChildSpanCount(),
		droppedAttributeCount: s.DroppedAttributes(),
		droppedEventCount:     s.DroppedEvents(),
		droppedLinkCount:      s.DroppedLinks(),
		resource:              s.Resource(),
		instrumentationScope:  s.InstrumentationScope(),
	}
}

// sdkType is the type of the SDK's own ReadOnlySpans, a pointer to its snapshot,
// once one was seen.
var sdkType atomic.Pointer[reflect.Type]

// foreign are the types of ReadOnlySpans that are not.
var foreign sync.Map

// see gives the fields of a span of the SDK's; nil if it is not one, and copyOf
// must do.
func see(s sdktrace.ReadOnlySpan) *snapshot {
	t := reflect.TypeOf(s)
	if known := sdkType.Load(); (known == nil || *known != t) && !isSnapshot(t) {
		return nil
	}
	return (*snapshot)(reflect.ValueOf(s).UnsafePointer())
}

// isSnapshot finds out about a type, and remembers it.
func isSnapshot(t reflect.Type) bool {
	if _, known := foreign.Load(t); known {
		return false
	}
	if t != nil && t.Kind() == reflect.Pointer && isSDKs(t.Elem()) && sameLayout(t.Elem(), reflect.TypeFor[snapshot]()) {
		known := t // else t would be on the heap at each call
		sdkType.Store(&known)
		return true
	}
	foreign.Store(t, nil)
	return false
}

// isSDKs goes by the name: methods of another type may say something else than
// its fields.
func isSDKs(t reflect.Type) bool {
	return t.Name() == "snapshot" && t.PkgPath() == reflect.TypeFor[sdktrace.Event]().PkgPath()
}

// sameLayout tells whether two structs have the same fields, of the same names
// and types, at the same places.
func sameLayout(a, b reflect.Type) bool {
	if a.Kind() != reflect.Struct || b.Kind() != reflect.Struct || a.NumField() != b.NumField() || a.Size() != b.Size() {
		return false
	}
	for i := range a.NumField() {
		fa, fb := a.Field(i), b.Field(i)
		if fa.Name != fb.Name || fa.Type != fb.Type || fa.Offset != fb.Offset {
			return false
		}
	}
	return true
}
