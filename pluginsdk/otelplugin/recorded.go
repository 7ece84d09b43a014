package otelplugin

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// recorded is a decoded span for an exporter of the SDK. It exists because each method
// call on the result of SpanStub.Snapshot copies the whole stub.
type recorded struct {
	sdktrace.ReadOnlySpan // always nothing; implements methods that a later SDK adds

	stub tracetest.SpanStub
}

// nothing is an empty span. Its methods return zero values. It implements the methods
// that a later SDK adds.
var nothing = tracetest.SpanStub{}.Snapshot()

// Name and the methods below return the fields of the decoded span.
func (r *recorded) Name() string                                { return r.stub.Name }
func (r *recorded) SpanContext() trace.SpanContext              { return r.stub.SpanContext }
func (r *recorded) Parent() trace.SpanContext                   { return r.stub.Parent }
func (r *recorded) SpanKind() trace.SpanKind                    { return r.stub.SpanKind }
func (r *recorded) StartTime() time.Time                        { return r.stub.StartTime }
func (r *recorded) EndTime() time.Time                          { return r.stub.EndTime }
func (r *recorded) Attributes() []attribute.KeyValue            { return r.stub.Attributes }
func (r *recorded) Events() []sdktrace.Event                    { return r.stub.Events }
func (r *recorded) Links() []sdktrace.Link                      { return r.stub.Links }
func (r *recorded) Status() sdktrace.Status                     { return r.stub.Status }
func (r *recorded) DroppedAttributes() int                      { return r.stub.DroppedAttributes }
func (r *recorded) DroppedEvents() int                          { return r.stub.DroppedEvents }
func (r *recorded) DroppedLinks() int                           { return r.stub.DroppedLinks }
func (r *recorded) Resource() *resource.Resource                { return r.stub.Resource }
func (r *recorded) InstrumentationScope() instrumentation.Scope { return r.stub.InstrumentationScope }

// InstrumentationLibrary returns the scope under its old name.
func (r *recorded) InstrumentationLibrary() instrumentation.Library { //nolint:staticcheck // deprecated for callers
	return r.stub.InstrumentationScope
}
