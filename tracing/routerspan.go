package tracing

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
)

// RouterStart is what is known when a call of a deployment begins.
type RouterStart struct {
	// App and Deployment are those called, which for a call by handle are not
	// those of the Request in the context.
	App, Deployment string
	// CallMethod is the method called; empty means "__call__".
	CallMethod string
	// Protocol is that of the call.
	Protocol Protocol
	// Streaming says whether the answer is a stream. HTTP always counts as one.
	Streaming bool
	// ModelID is the multiplexed model's id; empty for none.
	ModelID string
	// Within is where the context of the span is made, for who keeps it as long as
	// that; nil, or one that has been used: it is allocated.
	Within *Within
}

// RouterOutcome is how the choice of a replica ended.
type RouterOutcome uint8

// The outcomes.
const (
	// RouterAccepted: a replica took the request.
	RouterAccepted RouterOutcome = iota
	// RouterRefused: the queue was full or the deployment unavailable, so that
	// no replica was looked for. The span then has no http.* or rpc.*
	// attributes and no wait, as in Ray.
	RouterRefused
	// RouterCanceled: a timeout, or the caller left, while waiting.
	RouterCanceled
	// RouterFailed: any other error.
	RouterFailed
)

// RouterResult is how the choice of a replica ended.
type RouterResult struct {
	Outcome RouterOutcome
	// QueueWait is how long the request waited for a slot.
	QueueWait time.Duration
	// Err is why no replica took the request. It is recorded for RouterCanceled
	// alone, as in Ray: the router's errors show on the proxy span. Not read for
	// RouterAccepted.
	Err error
	// At is when the choice ended, by Clock; 0 for now.
	At time.Duration
}

// RouterSpan is the span of one choice of a replica. The zero value is that of
// an unsampled request: its End does nothing.
type RouterSpan struct {
	span  *span
	shape *spanShape
}

// StartRouter starts the router span as a child of the span in ctx. The request
// id and the route are those of the Request in ctx. The returned context is the
// parent of the replica span.
func (p *Provider) StartRouter(ctx context.Context, s RouterStart) (context.Context, RouterSpan) {
	if p.tracer == nil {
		return ctx, RouterSpan{}
	}
	room := 34 + p.naming.room(0, 40)
	ctx, span := p.start(ctx, s.Within, p.families.router, trace.SpanKindServer, room, 0)
	if span == nil {
		return ctx, RouterSpan{}
	}
	if s.CallMethod == "" {
		s.CallMethod = semconv.DefaultCallMethod
	}
	attrs := span.begin()
	kind := spanKind{
		family: p.families.router, deployment: s.Deployment, app: s.App, method: s.CallMethod,
		modelID: s.ModelID, protocol: s.Protocol, streaming: s.Streaming,
	}
	var in *Component
	if req := RequestFromContext(ctx); req != nil {
		in, kind.route = req.Component, req.Route
		kind.by(req)
		attrs.call(req)
	} else if attrs.serve.ray() {
		attrs.text(semconv.RequestID, "")
	}
	shape, isNew := p.shape(in, &kind, drawRouter)
	attrs.shape(shape, isNew)
	attrs.begin()
	return ctx, RouterSpan{span: span, shape: shape}
}

// by notes the full method of a call by gRPC.
func (k *spanKind) by(r *Request) {
	if k.protocol == GRPC {
		k.rpcMethod = r.rpcMethod
	}
}

func drawRouter(a, end *attributes, k spanKind, _ *Component) string {
	name := k.called(a)
	a.serveFlag(semconv.IsHTTPRequest, semconv.ServeIsHTTPRequest, k.protocol.overHTTP())
	a.serveFlag(semconv.IsGRPCRequest, semconv.ServeIsGRPCRequest, k.protocol == GRPC)
	a.text(semconv.ResourceName, name)
	if k.protocol.overHTTP() {
		if end.http.ray() { // today's is the verb, and that of the proxy span
			end.text(semconv.HTTPMethod, k.method)
		}
		end.text(semconv.HTTPRoute, k.route)
	} else {
		end.rpcCall(k)
	}
	return name
}

// called adds what router and replica spans both say of the method that is called,
// and gives their name.
func (k spanKind) called(a *attributes) (name string) {
	a.owner(k.deployment, k.app)
	a.serveText(semconv.CallMethod, semconv.ServeCallMethod, k.method)
	a.serveText(semconv.Route, semconv.ServeRoute, k.route)
	a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, k.modelID)
	a.serveFlag(semconv.IsStreaming, semconv.ServeIsStreaming, k.streaming || k.protocol.overHTTP())
	return k.family.Name + " " + k.deployment + " " + k.method
}

// Recording says whether the span records; for work that only a recorded span
// is worth.
func (s RouterSpan) Recording() bool { return s.span != nil }

// Context returns the span's context; zero where it does not record.
func (s RouterSpan) Context() trace.SpanContext { return s.span.context() }

// End ends the span. Its status stays unset, as in Ray. Call it once, when a
// replica accepted the request or none will.
func (s RouterSpan) End(r RouterResult) {
	if s.span == nil {
		return
	}
	end := s.span.time(r.At)
	failed := r.Outcome != RouterAccepted && r.Err != nil
	var kind string
	if failed {
		kind = failureType(s.span.provider.naming.of(s.shape.protocol), r.Err)
	}
	attrs := s.span.attributes()
	if r.Outcome != RouterRefused {
		attrs.endShape(s.shape)
		attrs.decimal(semconv.ServeQueueWaitMS, milliseconds(r.QueueWait))
	}
	if failed {
		attrs.failure(attrs.of(s.shape.protocol), kind, 0)
	}
	if !failed || r.Outcome != RouterCanceled {
		attrs.end(codes.Unset, end)
		return
	}
	attrs.set()
	recordException(s.span, end, r.Err, semconv.EscapedTrue)
	s.span.endAt(end)
}

// milliseconds returns d in milliseconds, to the microsecond; 0 for less.
func milliseconds(d time.Duration) float64 {
	return math.Max(0, float64(d.Microseconds())/1000)
}
