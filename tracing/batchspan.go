package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
)

// BatchStart is what is known when a batch is about to run.
type BatchStart struct {
	// Name is the batched function's, the last word of the span's name.
	Name string
}

// BatchSpan is the span of one run of a batched function. The zero value is that
// of a batch none of whose requests is sampled: its End does nothing.
type BatchSpan struct {
	span   trace.Span // nil if it does not record
	naming naming
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
func (p *Provider) StartBatch(members []context.Context, s BatchStart) (context.Context, BatchSpan) {
	first := 0
	var links []trace.Link
	if p.tracer != nil {
		first, links = batchLinks(members)
	}
	ctx, dropped := p.unsampled(context.WithoutCancel(members[first]), kindInternal, semconv.SpanBatch)
	if dropped {
		return ctx, BatchSpan{}
	}
	a, r := p.naming.atStart(), RequestFromContext(ctx)
	name := a.insideReplica(r, semconv.SpanBatch, s.Name)
	if r != nil {
		a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, r.ModelID)
	}
	a.number(semconv.ServeBatchSize, len(members))
	ctx, span := p.start(ctx, kindInternal, name, a.list, trace.WithLinks(links...))
	return ctx, BatchSpan{span: span, naming: p.naming}
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
		if r := RequestFromContext(ctx); r != nil {
			link.Attributes = []attribute.KeyValue{attribute.String(semconv.ServeRequestID, r.ID)}
		}
		links = append(links, link)
	}
	return first, links
}

// Context returns the span's context; zero if it does not record.
func (s BatchSpan) Context() trace.SpanContext { return contextOf(s.span) }

// End ends the span. Where the function failed, which is then every member's
// error, the status is ERROR and err an event; else the status stays unset.
// Call it once, when the function has really returned.
func (s BatchSpan) End(err error) { endInternal(s.span, s.naming, err) }
