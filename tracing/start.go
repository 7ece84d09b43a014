package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
)

// The kinds of our spans, as options.
var (
	kindServer   = trace.WithSpanKind(trace.SpanKindServer)
	kindInternal = trace.WithSpanKind(trace.SpanKindInternal)
)

// unsampled reports whether a span under that of ctx is certainly not sampled, so
// that its name and attributes need not be put together, and returns the context
// that goes on. The first span of such a trace in this process is started, without
// recording, so that what leaves the process has an id of this process. What
// follows inside the trace is not.
func (p *Provider) unsampled(ctx context.Context, kind trace.SpanStartOption, family string) (context.Context, bool) {
	if p.tracer == nil {
		return ctx, true
	}
	parent := trace.SpanContextFromContext(ctx)
	if !p.drops(parent) {
		return ctx, false
	}
	if !parent.IsValid() || parent.IsRemote() || parent.IsSampled() {
		ctx, _ = p.tracer.Start(ctx, family, kind)
	}
	return ctx, true
}

// drops reports whether a span with this parent is certainly not sampled.
func (p *Provider) drops(parent trace.SpanContext) bool {
	if p.inherits && parent.IsValid() && (p.trust || !parent.IsRemote()) {
		return !parent.IsSampled()
	}
	return p.never
}

// start starts a span by the SDK. The span is nil if it does not record; the
// returned context carries the decision in any case.
func (p *Provider) start(
	ctx context.Context, kind trace.SpanStartOption, name string, attrs []attribute.KeyValue, opts ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	ctx, span := p.tracer.Start(ctx, name, append(opts, kind, trace.WithAttributes(attrs...))...)
	if !span.IsRecording() {
		return ctx, nil
	}
	return ctx, span
}

// contextOf returns the context of a span, and zero for nil.
func contextOf(span trace.Span) trace.SpanContext {
	if span == nil {
		return trace.SpanContext{}
	}
	return span.SpanContext()
}

// endInternal ends a span of kind INTERNAL, which may be nil.
func endInternal(span trace.Span, names naming, err error) {
	if span == nil {
		return
	}
	if err != nil {
		a := names.atEnd()
		a.failure(a.serve, err, 0)
		span.SetAttributes(a.list...)
		recordException(span, err, semconv.EscapedTrue)
		span.SetStatus(codes.Error, description(err))
	}
	span.End()
}
