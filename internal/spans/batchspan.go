package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// BatchStart is what is known when a batch is about to run.
type BatchStart struct {
	// Name is the batched function's, the last word of the span's name.
	Name string
}

// StartBatch starts the span of a batch, of kind INTERNAL. The members are the
// contexts of its requests, one or more, in the order in which they came; it
// keeps none of them but the first sampled, whose current span becomes the
// parent. To the spans of the other sampled ones it links, as many as the
// limit of links allows; each link carries the request's serve.request_id.
//
// The returned context is what the function is to run with: that of the first
// sampled member, or of members[0] where none is, with its values (Request,
// baggage, span) and without its cancellation and deadline, which are not those
// of the others.
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

// batchLinks finds the first sampled member, or members[0] where none is, and
// links to the others.
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
		// One request may be in a batch several times, and then in a row.
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
