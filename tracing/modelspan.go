package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
)

// ModelLoadSpan is the span of one load of a multiplexed model. The zero value is
// that of a load in an unsampled request: its End does nothing.
type ModelLoadSpan struct {
	span   trace.Span // nil if it does not record
	naming naming
}

// StartModelLoad starts the span of loading modelID, of kind INTERNAL, as a
// child of the current span of ctx: that of the request which asked for the
// model first. Deployment, request id and replica are those of the Request in
// ctx; a load outside of a request, as at a replica's start, has none of them
// and begins a trace of its own. The returned context is what the model is to
// be loaded with.
func (p *Provider) StartModelLoad(ctx context.Context, modelID string) (context.Context, ModelLoadSpan) {
	ctx, dropped := p.unsampled(ctx, kindInternal, semconv.SpanModelLoad)
	if dropped {
		return ctx, ModelLoadSpan{}
	}
	a := p.naming.atStart()
	name := a.insideReplica(RequestFromContext(ctx), semconv.SpanModelLoad, modelID)
	a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, modelID)
	ctx, span := p.start(ctx, kindInternal, name, a.list)
	return ctx, ModelLoadSpan{span: span, naming: p.naming}
}

// Context returns the span's context; zero if it does not record.
func (s ModelLoadSpan) Context() trace.SpanContext { return contextOf(s.span) }

// End ends the span. Where the load failed, the status is ERROR and err an
// event; else the status stays unset. Call it once, when the model is there or
// will not be.
func (s ModelLoadSpan) End(err error) { endInternal(s.span, s.naming, err) }

// insideReplica adds the attributes that the spans of work inside a replica share,
// and returns the span's name. Outside of a request, if r is nil, the name lacks
// the deployment.
func (a *attributes) insideReplica(r *Request, family, last string) (name string) {
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
