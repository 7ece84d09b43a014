package spans

import (
	"context"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// StartModelLoad starts the span for loading modelID, of kind INTERNAL, as a child of
// the current span in ctx. That is the span of the first request for the model.
// Deployment, request id and replica come from the Request in ctx. A load outside of a
// request, as at a replica's start, has none of them and starts a new trace. The
// returned context is for the load function.
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

// insideReplica adds the attributes that spans of work inside a replica share, and
// returns the span's name. If r is nil, outside of a request, the name lacks the
// deployment.
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
