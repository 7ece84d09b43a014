package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// BatchStart describes a batch that is about to run.
type BatchStart struct {
	// Name is the name of the batched function, the last word of the span's name.
	Name string
}

// StartBatch starts the span of a batch, of kind INTERNAL. members are the contexts of
// its requests, at least one, in order of arrival. The current span of the first
// sampled member is the parent. The span links to the spans of the other sampled
// members, up to the limit of links. Each link has the request's serve.request_id.
//
// The returned context is for the batched function. It is the context of the first
// sampled member, or of members[0] if none is sampled. It has the values (Request,
// baggage, span), but not the cancellation and the deadline, which do not apply to the
// other requests.
func (t *Tracer) StartBatch(members []context.Context, s BatchStart) (context.Context, Span) {
	first := 0
	var links []trace.Link
	if t.tracer != nil {
		first, links = batchLinks(members)
	}
	ctx, dropped := t.unsampled(context.WithoutCancel(members[first]), kindInternal, semconv.SpanBatch)
	if dropped {
		return ctx, Span{}
	}
	a, r := t.naming.atStart(), identity.RequestFromContext(ctx)
	name := a.insideReplica(r, semconv.SpanBatch, s.Name)
	if r != nil {
		a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, r.ModelID)
	}
	a.number(semconv.ServeBatchSize, len(members))
	return t.start(ctx, kindInternal, name, a.list, call{}, trace.WithLinks(links...))
}

// batchLinks returns the index of the first sampled member, or 0 if none is sampled,
// and links to the other sampled members.
func batchLinks(members []context.Context) (first int, links []trace.Link) {
	var parent, last trace.SpanContext
	for i, ctx := range members {
		sc := trace.SpanContextFromContext(ctx)
		if !sc.IsSampled() {
			continue
		}
		if !parent.IsValid() {
			first, parent, last = i, sc, sc
			continue
		}
		// A request may be in a batch several times, in a row.
		if sc.SpanID() == parent.SpanID() || sc.SpanID() == last.SpanID() {
			continue
		}
		last = sc
		link := trace.Link{SpanContext: sc}
		if r := identity.RequestFromContext(ctx); r != nil {
			link.Attributes = []attribute.KeyValue{attribute.String(semconv.ServeRequestID, r.ID)}
		}
		links = append(links, link)
	}
	return first, links
}
