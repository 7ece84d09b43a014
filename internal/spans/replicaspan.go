package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

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
}

// ReplicaResult is the result of a handler.
type ReplicaResult struct {
	// StatusCode is the status of the response that the handler started, or that its
	// error caused. 0 if no response was started, and for web sockets. Not used for
	// other protocols.
	StatusCode int
	// Err is the handler's error or panic, or the cancellation that ended it, or nil.
	Err error
}

// StartReplica starts the replica span as a child of the span in ctx, which should be
// the router span. The returned context carries the Request. It is for the handler, so
// the user's own spans become children of the replica span.
func (t *Tracer) StartReplica(ctx context.Context, s ReplicaStart) (context.Context, Span) {
	r := s.Request
	if outer := identity.RequestFromContext(ctx); outer != nil && outer != r {
		r.Inbound, r.RPCMethod = outer.Inbound, outer.RPCMethod
	}
	ctx, dropped := t.unsampled(r.Carry(ctx), kindServer, semconv.SpanReplica)
	if dropped {
		return ctx, Span{}
	}
	c := call{deployment: r.Deployment, app: r.App, method: s.CallMethod, verb: s.Method, modelID: r.ModelID, protocol: s.Protocol, streaming: s.Streaming}
	c.complete(r)
	a := t.naming.atStart()
	name := c.attributes(&a, semconv.SpanReplica, r)
	a.replica(r.Component)
	return t.start(ctx, kindServer, name, a.list, c)
}

// EndReplica ends a replica span. Its status stays unset, as in Ray; an error becomes
// an event that did not escape. Call it once, after the handler has returned.
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
