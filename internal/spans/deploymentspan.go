package spans

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// RouterStart describes a call of a deployment that begins.
type RouterStart struct {
	// App and Deployment are the called application and deployment. If a handler makes the
	// call by handle, the Request in the context has the application and deployment of the
	// handler.
	App, Deployment string
	// CallMethod is the called method; empty means "__call__".
	CallMethod string
	// Protocol is the protocol of the call.
	Protocol Protocol
	// Streaming reports whether the answer is a stream. HTTP always counts as a stream.
	Streaming bool
	// ModelID is the multiplexed model's id, or "".
	ModelID string
	// Unsampled reports that the proxy span does not record, because its trace is not sampled
	// or tracing is off. If so, no router span is started.
	Unsampled bool
}

// RouterOutcome is the outcome of the choice of a replica.
type RouterOutcome uint8

// The outcomes of the choice of a replica.
const (
	// RouterAccepted means that a replica accepted the request.
	RouterAccepted RouterOutcome = iota
	// RouterRefused means that the queue was full or the deployment unavailable, so no
	// replica was chosen. As in Ray, the span then has no http.* and rpc.* attributes. It
	// has no serve.queue_wait_ms either.
	RouterRefused
	// RouterCanceled means that the caller left, or a timeout passed, while the request waited
	// for a replica.
	RouterCanceled
)

// RouterResult is the result of the choice of a replica.
type RouterResult struct {
	Outcome RouterOutcome
	// QueueWait is the time that the request waited for a slot.
	QueueWait time.Duration
	// Err is the reason for which no replica accepted the request. Not used for
	// RouterAccepted. As in Ray, the span has an exception event only for RouterCanceled.
	Err error
}

// StartRouter starts the router span as a child of the span in ctx. The request id and
// the route come from the Request in ctx. The returned context is the parent of the
// replica span.
func (t *Tracer) StartRouter(ctx context.Context, s RouterStart) (context.Context, Span) {
	if s.Unsampled {
		return ctx, Span{}
	}
	ctx, dropped := t.dropUnsampled(ctx, semconv.SpanRouter)
	if dropped {
		return ctx, Span{}
	}
	r := identity.RequestFromContext(ctx)
	if r == nil {
		r = &identity.Request{}
	}
	c := call{deployment: s.Deployment, app: s.App, method: s.CallMethod, modelID: s.ModelID, protocol: s.Protocol, streaming: s.Streaming}
	c.complete(r)
	a := t.naming.atStart()
	name := c.attributes(&a, semconv.SpanRouter, r)
	a.serveFlag(semconv.IsHTTPRequest, semconv.ServeIsHTTPRequest, c.protocol.overHTTP())
	a.serveFlag(semconv.IsGRPCRequest, semconv.ServeIsGRPCRequest, c.protocol == GRPC)
	return t.start(ctx, name, a.list, c, kindServer)
}

// complete sets the default of the call's method, and copies the route and gRPC's method from
// the request.
func (c *call) complete(r *identity.Request) {
	if c.method == "" {
		c.method = semconv.DefaultCallMethod
	}
	c.route = r.Route
	if c.protocol == GRPC {
		c.rpcMethod = r.RPCMethod
	}
}

// attributes adds the attributes that router and replica spans have at their start. It
// returns the name of the span. family is the first word of the name.
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
// replica has accepted the request or when no replica will accept it.
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

// routerEnd returns the attributes at the end of a router span. failed reports that no
// replica accepted the request.
func (s Span) routerEnd(r RouterResult, failed bool) []attribute.KeyValue {
	a := s.naming.atEnd()
	if r.Outcome != RouterRefused {
		if s.call.protocol.overHTTP() {
			if a.naming.http.ray() { // Ray writes the called method under this key; the current key is for the verb
				a.text(semconv.HTTPMethod, s.call.method)
			}
			a.text(semconv.HTTPRoute, s.call.route)
		} else {
			a.rpcCall(s.call)
		}
		a.decimal(semconv.ServeQueueWaitMS, milliseconds(r.QueueWait))
	}
	if failed {
		a.failure(a.naming.of(s.call.protocol), r.Err, 0)
	}
	return a.list
}

// milliseconds converts a duration, rounded to microseconds. A negative duration becomes 0.
func milliseconds(d time.Duration) float64 {
	return math.Max(0, float64(d.Microseconds())/1000)
}

// ReplicaStart describes a request that a replica has accepted.
type ReplicaStart struct {
	// Request is the request's identity in this replica, with the replica as its
	// Component. Required.
	Request *identity.Request
	// Protocol is the protocol of the call.
	Protocol Protocol
	// CallMethod is the called method; empty means "__call__".
	CallMethod string
	// Method is the verb, as in ProxyStart. Used for HTTP and web sockets only.
	Method string
	// Streaming reports whether the answer is a stream. HTTP always counts as a stream.
	Streaming bool
	// Unsampled reports that the router span of this process does not record. If so, no
	// replica span is started.
	Unsampled bool
}

// ReplicaResult is the result of the user's handler, for the replica span.
type ReplicaResult struct {
	// StatusCode is the status of the response that the handler started, or that its
	// error caused. 0 if no response was started, and for web sockets. Not used for
	// other protocols.
	StatusCode int
	// Err is the handler's error or panic, or the cancellation that ended it, or nil.
	Err error
}

// StartReplica starts the replica span as a child of the span in ctx, which should be the
// router span. The returned context is for the handler. It carries the Request, and the
// user's own spans become children of the replica span.
func (t *Tracer) StartReplica(ctx context.Context, s ReplicaStart) (context.Context, Span) {
	r := s.Request
	if outer := identity.RequestFromContext(ctx); outer != nil {
		r.Continue(outer)
	}
	ctx = identity.ContextWithRequest(ctx, r)
	if s.Unsampled {
		return ctx, Span{}
	}
	ctx, dropped := t.dropUnsampled(ctx, semconv.SpanReplica)
	if dropped {
		return ctx, Span{}
	}
	c := call{deployment: r.Deployment, app: r.App, method: s.CallMethod, verb: s.Method, modelID: r.ModelID, protocol: s.Protocol, streaming: s.Streaming}
	c.complete(r)
	a := t.naming.atStart()
	name := c.attributes(&a, semconv.SpanReplica, r)
	a.replica(r.Component)
	return t.start(ctx, name, a.list, c, kindServer)
}

// EndReplica ends a replica span. Its status stays unset, as in Ray; an error becomes an
// exception event with exception.escaped false. Call it once, after the handler has
// returned.
func (s Span) EndReplica(r ReplicaResult) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(s.replicaEnd(r)...)
	if r.Err != nil {
		recordException(s.span, r.Err, semconv.EscapedFalse)
	}
	s.span.End()
}

// replicaEnd returns the attributes at the end of a replica span.
func (s Span) replicaEnd(r ReplicaResult) []attribute.KeyValue {
	a, protocol := s.naming.atEnd(), s.call.protocol
	if protocol.overHTTP() {
		a.text(semconv.HTTPRoute, s.call.route)
		a.httpMethod(protocol, s.call.verb)
		if protocol == HTTP && r.StatusCode != 0 {
			a.httpEnd(protocol, r.StatusCode)
		}
	} else {
		a.rpcCall(s.call)
	}
	if r.Err != nil || protocol == HTTP && r.StatusCode >= 500 {
		a.failure(a.naming.of(protocol), r.Err, r.StatusCode)
	}
	return a.list
}

// StartBatch starts the span of a batch of requests, of kind INTERNAL. members are the
// contexts of the requests, at least one, in order of arrival. name is the name of the
// batched function. The parent is the current span of the first sampled request. The span
// links to the current spans of the other sampled requests, up to the limit of links. Each
// link has the request's serve.request_id.
//
// The returned context is for the batched function. It has the values of the first sampled
// request's context, or of members[0] if no request is sampled. It has no cancellation and
// no deadline, because the end of one request must not end the batch.
func (t *Tracer) StartBatch(members []context.Context, name string) (context.Context, Span) {
	first := 0
	var links []trace.Link
	if t.tracer != nil {
		first, links = batchLinks(members)
	}
	ctx, dropped := t.dropUnsampled(context.WithoutCancel(members[first]), semconv.SpanBatch)
	if dropped {
		return ctx, Span{}
	}
	a, r := t.naming.atStart(), identity.RequestFromContext(ctx)
	spanName := a.insideReplica(r, semconv.SpanBatch, name)
	if r != nil {
		a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, r.ModelID)
	}
	a.number(semconv.ServeBatchSize, len(members))
	return t.start(ctx, spanName, a.list, call{}, kindInternal, trace.WithLinks(links...))
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
		// A request may be in the batch several times, one after another.
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

// StartModelLoad starts the span of a load of the model with the id modelID, of kind
// INTERNAL. Its parent is the current span in ctx, which should be the span of the first
// request for the model. Deployment, request id and replica come from the Request in ctx.
// Without a Request, as at the start of a replica, the span lacks these attributes. The
// returned context is for the load function.
func (t *Tracer) StartModelLoad(ctx context.Context, modelID string) (context.Context, Span) {
	ctx, dropped := t.dropUnsampled(ctx, semconv.SpanModelLoad)
	if dropped {
		return ctx, Span{}
	}
	a := t.naming.atStart()
	name := a.insideReplica(identity.RequestFromContext(ctx), semconv.SpanModelLoad, modelID)
	a.serveText(semconv.MultiplexedModelID, semconv.ServeMultiplexedModelID, modelID)
	return t.start(ctx, name, a.list, call{}, kindInternal)
}

// insideReplica adds the common attributes of batch and model load spans, and returns the
// name of the span. family is the first word of the name, and last is its last word. If r is
// nil, there is no request, and the name lacks the deployment.
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

// EndWork ends the span of a batch or of a model load. If err is not nil, it becomes an
// event and the status is ERROR; else the status stays unset. Call it once, after the
// batched function or the load has returned.
func (s Span) EndWork(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		a := s.naming.atEnd()
		a.failure(a.naming.serve, err, 0)
		s.span.SetAttributes(a.list...)
		recordException(s.span, err, semconv.EscapedTrue)
		s.span.SetStatus(codes.Error, description(err))
	}
	s.span.End()
}
