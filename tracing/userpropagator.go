package tracing

import (
	"context"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// insider is the propagator for user code. Inside a request it knows the context
// that the request came in with: whoever extracts just that again, as otelhttp
// and otelgrpc do around a handler (the request still has its headers), stays
// where he is. His spans are then children of the replica span, not of the
// caller's, which is already the parent of the proxy span.
type insider struct{ propagation.TextMapPropagator }

// Extract implements [propagation.TextMapPropagator].
func (p insider) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	r := identity.RequestFromContext(ctx)
	if r == nil || r.Came == nil {
		return p.TextMapPropagator.Extract(ctx, carrier)
	}
	if header, ok := carrier.(propagation.HeaderCarrier); ok {
		carrier = edgeHeader(header) // as the proxy read it
	}
	out := p.TextMapPropagator.Extract(ctx, carrier)
	here, found := trace.SpanContextFromContext(ctx), trace.SpanContextFromContext(out)
	if !found.Equal(here) { // there was one in the carrier
		if !found.Equal(trace.SpanContextFromContext(r.Came)) {
			return out // another caller's
		}
		if here.IsValid() && !here.IsRemote() {
			out = trace.ContextWithSpan(out, trace.SpanFromContext(ctx))
		}
	}
	return p.keepBaggage(ctx, out, r.Came)
}

// keepBaggage gives out the baggage of ctx, which may have changed since it came
// in; only what the carrier has beside that is added to it, or replaces it.
func (insider) keepBaggage(ctx, out, came context.Context) context.Context {
	here, found, in := baggage.FromContext(ctx), baggage.FromContext(out), baggage.FromContext(came)
	merged := here
	for _, m := range found.Members() {
		if m.String() == in.Member(m.Key()).String() {
			continue // whoever changed or deleted it since meant to
		}
		merged, _ = merged.SetMember(m) // fails for a member without data, which this is not
	}
	return baggage.ContextWithBaggage(out, merged)
}
