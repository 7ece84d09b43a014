package tracing

import (
	"context"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// userPropagator is the propagator for user code. A library such as otelhttp or otelgrpc
// around a handler extracts the trace context of the request again, which the proxy has
// extracted before. userPropagator recognises this trace context and leaves the current span
// in place. So the spans of the library are children of the replica span, and not of the
// client's span, which is the parent of the proxy span.
type userPropagator struct{ propagation.TextMapPropagator }

// Extract implements [propagation.TextMapPropagator].
func (p userPropagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	r := identity.RequestFromContext(ctx)
	if r == nil || r.Inbound == nil {
		return p.TextMapPropagator.Extract(ctx, carrier)
	}
	if header, ok := carrier.(propagation.HeaderCarrier); ok {
		carrier = edgeHeader(header) // so that it is parsed as in the proxy, and can be compared
	}
	out := p.TextMapPropagator.Extract(ctx, carrier)
	here, found := trace.SpanContextFromContext(ctx), trace.SpanContextFromContext(out)
	if !found.Equal(here) { // the carrier has another span context
		if !found.Equal(trace.SpanContextFromContext(r.Inbound)) {
			return out // the carrier has the context of another caller
		}
		if here.IsValid() && !here.IsRemote() {
			out = trace.ContextWithSpan(out, trace.SpanFromContext(ctx))
		}
	}
	return p.keepBaggage(ctx, out, r.Inbound)
}

// keepBaggage returns out with the baggage of ctx, which user code may have changed, and with
// the members of out's baggage that differ from the baggage of the request. inbound is the
// context with the baggage of the request.
func (userPropagator) keepBaggage(ctx, out, inbound context.Context) context.Context {
	here, found, in := baggage.FromContext(ctx), baggage.FromContext(out), baggage.FromContext(inbound)
	merged := here
	for _, m := range found.Members() {
		if m.String() == in.Member(m.Key()).String() {
			continue // the member is unchanged since the request arrived, and ctx may have changed or deleted it
		}
		merged, _ = merged.SetMember(m) // fails only for a member without data
	}
	return baggage.ContextWithBaggage(out, merged)
}
