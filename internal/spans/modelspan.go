package spans

import (
	"context"

	"go.opentelemetry.io/otel/codes"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// StartModelLoad starts the span of loading modelID, of kind INTERNAL, as a
// child of the current span of ctx: that of the request which asked for the
// model first. Deployment, request id and replica are those of the Request in
// ctx; a load outside of a request, as at a replica's start, has none of them
// and begins a trace of its own. The returned context is what the model is to
// be loaded with.
func (t *Tracer) StartModelLoad(ctx context.Context, modelID string) (context.Context, Span) {
	ctx, dropped := t.unsampled(ctx, kindInternal, semconv.SpanModelLoad)
	if dropped {
		return ctx, Span{}
	}
	a := t.naming.atStart()
	name := a.insideReplica(identity.RequestFromContext(ctx), semconv.SpanModelLoad, modelID)
	a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, modelID)
	return t.start(ctx, kindInternal, name, a.list, call{})
}

// EndWork ends the span of a batch or of a model load. If the function or the load
// failed, the status is ERROR and err an event; else the status stays unset. Call it
// once, when the function has really returned, or the model is there or will not be.
func (s Span) EndWork(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		a := s.naming.atEnd()
		a.failure(a.serve, err, 0)
		s.span.SetAttributes(a.list...)
		recordException(s.span, err, semconv.EscapedTrue)
		s.span.SetStatus(codes.Error, description(err))
	}
	s.span.End()
}

// insideReplica adds the attributes that the spans of work inside a replica share,
// and returns the span's name. Outside of a request, if r is nil, the name lacks
// the deployment.
func (a *attributes) insideReplica(r *identity.Request, family, last string) (name string) {
	name = family + " " + last
	if r != nil {
		name = family + " " + r.Deployment + " " + last
		a.request(r)
		a.owner(r.Deployment, r.App)
		a.replica(r.Component)
	}
	a.text(semconv.ResourceName, name)
	return name
}
