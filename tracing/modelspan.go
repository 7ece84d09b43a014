package tracing

import (
	"context"
	"unsafe"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/ended"
	"github.com/servetrace/servetrace/semconv"
)

// ModelLoadSpan is the span of one load of a multiplexed model. The zero value is
// that of a load in an unsampled request: its End does nothing.
type ModelLoadSpan struct {
	span *span
}

// StartModelLoad starts the span of loading modelID, of kind INTERNAL, as a
// child of the current span of ctx: that of the request which asked for the
// model first. Deployment, request id and replica are those of the Request in
// ctx; a load outside of a request, as at a replica's start, has none of them
// and begins a trace of its own. The returned context is what the model is to
// be loaded with.
func (p *Provider) StartModelLoad(ctx context.Context, modelID string) (context.Context, ModelLoadSpan) {
	ctx, span := p.start(ctx, nil, p.families.modelLoad, trace.SpanKindInternal, p.naming.room(290, 320), 0)
	if span == nil {
		return ctx, ModelLoadSpan{}
	}
	attrs := span.insideReplica(RequestFromContext(ctx), p.families.modelLoad, modelID)
	attrs.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, modelID)
	attrs.begin()
	return ctx, ModelLoadSpan{span: span}
}

// Context is the span's; zero where it does not record.
func (s ModelLoadSpan) Context() trace.SpanContext { return s.span.context() }

// End ends the span. Where the load failed, the status is ERROR and err an
// event; else the status stays unset. Call it once, when the model is there or
// will not be.
func (s ModelLoadSpan) End(err error) { endInternal(s.span, err) }

// insideReplica names the span of work that a request causes inside a replica, and
// gathers what the families of such work share. Outside of a request, where req is
// nil, the name lacks the deployment.
func (s *span) insideReplica(req *Request, family *ended.Like, last string) attributes {
	name, a := family.Name+" "+last, s.begin()
	if req != nil {
		name = family.Name + " " + req.Deployment + " " + last
		a.call(req)
		a.inside(req.Component)
		a.owner(req.Deployment, req.App)
		a.replica(req.Component)
	}
	a.text(semconv.ResourceName, name)
	a.like = family.Named(name)
	a.bytes += int(unsafe.Sizeof(*a.like))
	if req != nil && req.Component != nil {
		a.like.Task = req.Component.task
	}
	return a
}

// endInternal ends a span of kind INTERNAL.
func endInternal(span *span, err error) {
	if span == nil {
		return
	}
	end := span.time(0)
	if err != nil {
		kind := failureType(span.provider.naming.serve, err)
		attrs := span.attributes()
		attrs.failure(attrs.serve, kind, 0)
		attrs.set()
		recordException(span, end, err, semconv.EscapedTrue)
		span.SetStatus(codes.Error, description(err))
	}
	span.endAt(end)
}
