package spans

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/spans/identity"
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
	// Err is why no replica took the request. It is recorded for RouterCanceled
	// alone, as in Ray: the router's errors show on the proxy span. Not read for
	// RouterAccepted.
	Err error
}

// StartRouter starts the router span as a child of the span in ctx. The request
// id and the route are those of the Request in ctx. The returned context is the
// parent of the replica span.
func (t *Tracer) StartRouter(ctx context.Context, s RouterStart) (context.Context, Span) {
	ctx, dropped := t.unsampled(ctx, kindServer, semconv.SpanRouter)
	if dropped {
		return ctx, Span{}
	}
	r := identity.RequestFromContext(ctx)
	if r == nil {
		r = &identity.Request{}
	}
	c := call{deployment: s.Deployment, app: s.App, method: s.CallMethod, modelID: s.ModelID, protocol: s.Protocol, streaming: s.Streaming}
	c.by(r)
	a := t.naming.atStart()
	name := c.attributes(&a, semconv.SpanRouter, r)
	a.serveFlag(semconv.IsHTTPRequest, semconv.ServeIsHTTPRequest, c.protocol.overHTTP())
	a.serveFlag(semconv.IsGRPCRequest, semconv.ServeIsGRPCRequest, c.protocol == GRPC)
	return t.start(ctx, kindServer, name, a.list, c)
}

// by fills in the call's default method, and what the request says of the call.
func (c *call) by(r *identity.Request) {
	if c.method == "" {
		c.method = semconv.DefaultCallMethod
	}
	c.route = r.Route
	if c.protocol == GRPC {
		c.rpcMethod = r.RPCMethod
	}
}

// attributes adds the attributes that router and replica spans start with, and
// returns the span's name.
func (c call) attributes(a *attributes, family string, r *identity.Request) (name string) {
	name = family + " " + c.deployment + " " + c.method
	a.request(r)
	a.owner(c.deployment, c.app)
	a.serveText(semconv.CallMethod, semconv.ServeCallMethod, c.method)
	a.serveText(semconv.Route, semconv.ServeRoute, c.route)
	a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, c.modelID)
	a.serveFlag(semconv.IsStreaming, semconv.ServeIsStreaming, c.streaming || c.protocol.overHTTP())
	a.text(semconv.ResourceName, name)
	return name
}

// EndRouter ends a router span. Its status stays unset, as in Ray. Call it once, when a
// replica accepted the request or none will.
func (s Span) EndRouter(r RouterResult) {
	if s.span == nil {
		return
	}
	failed := r.Outcome != RouterAccepted && r.Err != nil
	s.span.SetAttributes(s.routerEnd(r, failed)...)
	if failed && r.Outcome == RouterCanceled {
		recordException(s.span, r.Err, semconv.EscapedTrue)
	}
	s.span.End()
}

func (s Span) routerEnd(r RouterResult, failed bool) []attribute.KeyValue {
	a := s.naming.atEnd()
	if r.Outcome != RouterRefused {
		if s.call.protocol.overHTTP() {
			if a.http.ray() { // today's is the verb, and that of the proxy span
				a.text(semconv.HTTPMethod, s.call.method)
			}
			a.text(semconv.HTTPRoute, s.call.route)
		} else {
			a.rpcCall(s.call)
		}
		a.decimal(semconv.ServeQueueWaitMS, milliseconds(r.QueueWait))
	}
	if failed {
		a.failure(a.of(s.call.protocol), r.Err, 0)
	}
	return a.list
}

// milliseconds returns d in milliseconds, to the microsecond; 0 for less.
func milliseconds(d time.Duration) float64 {
	return math.Max(0, float64(d.Microseconds())/1000)
}
