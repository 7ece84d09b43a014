package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Span is a span of one of the families from its start to its end. The zero value is
// the span of an unsampled request: its methods do nothing.
type Span struct {
	span   trace.Span // nil if it does not record
	naming naming
	call   call
}

// call is what a span's end needs to know of its start.
type call struct {
	deployment, app        string
	method, route, modelID string
	verb                   string // of HTTP, as the client sent it
	rpcMethod              string // full; empty except for gRPC
	protocol               Protocol
	streaming              bool
}

// Recording reports whether the span records; for work that only a recorded span is
// worth.
func (s Span) Recording() bool { return s.span != nil }

// Context returns the span's context; zero if it does not record.
func (s Span) Context() trace.SpanContext {
	if s.span == nil {
		return trace.SpanContext{}
	}
	return s.span.SpanContext()
}

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
func (t *Tracer) unsampled(ctx context.Context, kind trace.SpanStartOption, family string) (context.Context, bool) {
	if t.tracer == nil {
		return ctx, true
	}
	parent := trace.SpanContextFromContext(ctx)
	if !t.Drops(parent) {
		return ctx, false
	}
	if !parent.IsValid() || parent.IsRemote() || parent.IsSampled() {
		ctx, _ = t.tracer.Start(ctx, family, kind)
	}
	return ctx, true
}

// start starts a span by the SDK. The returned context carries the decision, whether
// or not the span records.
func (t *Tracer) start(
	ctx context.Context, kind trace.SpanStartOption, name string, attrs []attribute.KeyValue, c call, opts ...trace.SpanStartOption,
) (context.Context, Span) {
	ctx, span := t.tracer.Start(ctx, name, append(opts, kind, trace.WithAttributes(attrs...))...)
	if !span.IsRecording() {
		return ctx, Span{}
	}
	return ctx, Span{span: span, naming: t.naming, call: c}
}
