package shapes

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// limits are the limits of a tracer provider.
type limits int

const (
	defaultLimits limits = iota
	noLimits
	tightLimits
)

// sdk makes spans with the SDK's own tracer providers, one for each resource
// and limits.
type sdk struct {
	providers map[providerKey]*sdktrace.TracerProvider
	ended     lastEnded
}

type providerKey struct {
	resource *resource.Resource
	limits   limits
}

func newSDK() *sdk { return &sdk{providers: map[providerKey]*sdktrace.TracerProvider{}} }

// play makes a span like stub, as far as the API allows. Dropped counts, which the API
// cannot set, follow from the limits.
func (s *sdk) play(stub tracetest.SpanStub, l limits) sdktrace.ReadOnlySpan {
	scope := stub.InstrumentationScope
	tracer := s.provider(providerKey{stub.Resource, l}).Tracer(scope.Name, trace.WithInstrumentationVersion(scope.Version),
		trace.WithSchemaURL(scope.SchemaURL), trace.WithInstrumentationAttributeSet(scope.Attributes))
	ctx := context.WithValue(context.Background(), idsKey{}, stub.SpanContext)
	ctx = trace.ContextWithSpanContext(ctx, stub.Parent)

	// Half of everything is there at the start.
	links, attributes := len(stub.Links)/2, len(stub.Attributes)/2
	var atStart []trace.Link
	for _, link := range stub.Links[:links] {
		atStart = append(atStart, trace.Link{SpanContext: link.SpanContext, Attributes: link.Attributes})
	}
	_, span := tracer.Start(ctx, "provisional", trace.WithTimestamp(stub.StartTime), trace.WithSpanKind(stub.SpanKind),
		trace.WithLinks(atStart...), trace.WithAttributes(stub.Attributes[:attributes]...))
	for _, link := range stub.Links[links:] {
		span.AddLink(trace.Link{SpanContext: link.SpanContext, Attributes: link.Attributes})
	}
	span.SetAttributes(stub.Attributes[attributes:]...)
	for _, event := range stub.Events {
		span.AddEvent(event.Name, trace.WithTimestamp(event.Time), trace.WithAttributes(event.Attributes...))
	}
	if l == noLimits {
		span.RecordError(errors.New("broken: "+stub.Name), trace.WithStackTrace(true), trace.WithTimestamp(stub.EndTime))
	}
	span.SetName(stub.Name)
	span.SetStatus(stub.Status.Code, stub.Status.Description)
	span.End(trace.WithTimestamp(stub.EndTime))
	return s.ended.span
}

func (s *sdk) provider(key providerKey) *sdktrace.TracerProvider {
	if p := s.providers[key]; p != nil {
		return p
	}
	spanLimits := sdktrace.NewSpanLimits()
	switch key.limits {
	case defaultLimits:
	case noLimits:
		spanLimits = sdktrace.SpanLimits{
			AttributeValueLengthLimit: -1, AttributeValueDepthLimit: -1, AttributeCountLimit: -1, EventCountLimit: -1,
			LinkCountLimit: -1, AttributePerEventCountLimit: -1, AttributePerLinkCountLimit: -1,
		}
	case tightLimits:
		spanLimits.AttributeValueLengthLimit, spanLimits.AttributeCountLimit = 5, 4
		spanLimits.EventCountLimit, spanLimits.AttributePerEventCountLimit = 1, 1
		spanLimits.LinkCountLimit, spanLimits.AttributePerLinkCountLimit = 1, 1
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithResource(key.resource), sdktrace.WithRawSpanLimits(spanLimits),
		sdktrace.WithIDGenerator(idsOfContext{}), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(&s.ended))
	s.providers[key] = p
	return p
}

type idsKey struct{}

// idsOfContext gives the ids of the trace.SpanContext in the context.
type idsOfContext struct{}

func (idsOfContext) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	sc, _ := ctx.Value(idsKey{}).(trace.SpanContext)
	return sc.TraceID(), sc.SpanID()
}

func (idsOfContext) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	sc, _ := ctx.Value(idsKey{}).(trace.SpanContext)
	return sc.SpanID()
}

// lastEnded is a processor that keeps the span that ended last.
type lastEnded struct{ span sdktrace.ReadOnlySpan }

func (l *lastEnded) OnEnd(s sdktrace.ReadOnlySpan)                 { l.span = s }
func (*lastEnded) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*lastEnded) Shutdown(context.Context) error                  { return nil }
func (*lastEnded) ForceFlush(context.Context) error                { return nil }
