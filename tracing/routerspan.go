package tracing

import (
	"context"
	"math"
	"time"

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
	// Err is recorded for RouterCanceled, and not read for the others: the
	// router's errors show on the proxy span.
	Err error
}

// RouterSpan is the span of one choice of a replica. The zero value is that of
// an unsampled request: its End does nothing.
type RouterSpan struct {
	span  trace.Span
	start RouterStart
	route string
}

// StartRouter starts the router span as a child of the span in ctx. The request
// id and the route are those of the Request in ctx. The returned context is the
// parent of the replica span.
func (p *Provider) StartRouter(ctx context.Context, s RouterStart) (context.Context, RouterSpan) {
	ctx, span := p.start(ctx, semconv.SpanRouter, serverKind)
	if span == nil {
		return ctx, RouterSpan{}
	}
	if s.CallMethod == "" {
		s.CallMethod = semconv.DefaultCallMethod
	}
	req := RequestFromContext(ctx)
	var id, route string
	if req != nil {
		id, route = req.ID, req.Route
	}
	name := semconv.SpanRouter + " " + s.Deployment + " " + s.CallMethod
	span.SetName(name)
	attrs := newAttributes()
	attrs.text(semconv.RequestID, id)
	attrs.text(semconv.Deployment, s.Deployment)
	attrs.text(semconv.App, s.App)
	attrs.text(semconv.CallMethod, s.CallMethod)
	attrs.text(semconv.Route, route)
	attrs.text(semconv.MultiplexedModelID, s.ModelID)
	attrs.flag(semconv.IsStreaming, s.Streaming || s.Protocol.overHTTP())
	attrs.flag(semconv.IsHTTPRequest, s.Protocol.overHTTP())
	attrs.flag(semconv.IsGRPCRequest, s.Protocol == GRPC)
	attrs.text(semconv.ResourceName, name)
	attrs.stamp(req)
	attrs.setOn(span)
	return ctx, RouterSpan{span: span, start: s, route: route}
}

// Context returns the span's context; zero where it does not record.
func (s RouterSpan) Context() trace.SpanContext { return contextOf(s.span) }

// End ends the span. Its status stays unset, as in Ray. Call it once, when a
// replica accepted the request or none will.
func (s RouterSpan) End(r RouterResult) {
	if s.span == nil {
		return
	}
	if r.Outcome != RouterRefused {
		s.endAttributes(r.QueueWait)
	}
	if r.Outcome == RouterCanceled && r.Err != nil {
		recordException(s.span, r.Err, semconv.EscapedTrue)
	}
	s.span.End()
}

func (s RouterSpan) endAttributes(wait time.Duration) {
	attrs := newAttributes()
	if s.start.Protocol.overHTTP() {
		attrs.text(semconv.HTTPMethod, s.start.CallMethod)
		attrs.text(semconv.HTTPRoute, s.route)
	} else {
		attrs.rpc(s.start.Protocol, s.start.CallMethod, s.start.Deployment)
	}
	attrs.decimal(semconv.ServeQueueWaitMS, milliseconds(wait))
	attrs.setOn(s.span)
}

// rpc adds what a router or replica span of a call other than HTTP ends with.
func (a *attributes) rpc(p Protocol, method, deployment string) {
	system := semconv.RPCSystemUndefined
	if p == GRPC {
		system = semconv.RPCSystemGRPC
	}
	a.text(semconv.RPCSystem, system)
	a.text(semconv.RPCMethod, method)
	a.text(semconv.RPCService, deployment)
}

// milliseconds returns d in milliseconds, to the microsecond; 0 for less.
func milliseconds(d time.Duration) float64 {
	return math.Max(0, float64(d.Microseconds())/1000)
}
