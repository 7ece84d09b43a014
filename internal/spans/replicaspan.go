package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// ReplicaStart is what is known when a replica accepted a request.
type ReplicaStart struct {
	// Request is the request's identity in this replica, with the replica as
	// its Component. Required.
	Request *identity.Request
	// Protocol is that of the call.
	Protocol Protocol
	// CallMethod is the method called; empty means "__call__".
	CallMethod string
	// Method is as in ProxyStart. Read for HTTP and web sockets only.
	Method string
	// Streaming says whether the answer is a stream. HTTP always counts as one.
	Streaming bool
}

// ReplicaResult is how a handler ended.
type ReplicaResult struct {
	// StatusCode is the status of the response that the handler started, or of
	// the one that its error became; 0 where no response was started, and for
	// web sockets. Not read for other protocols.
	StatusCode int
	// Err is the handler's error or panic, or the cancellation that ended it,
	// or nil.
	Err error
}

// StartReplica starts the replica span as a child of the span in ctx, which
// should be the router's. The returned context carries the Request; it is what
// the handler gets, and the user's own spans become children of this one.
func (t *Tracer) StartReplica(ctx context.Context, s ReplicaStart) (context.Context, Span) {
	r := s.Request
	if outer := identity.RequestFromContext(ctx); outer != nil && outer != r {
		r.Came, r.RPCMethod = outer.Came, outer.RPCMethod
	}
	ctx, dropped := t.unsampled(r.Carry(ctx), kindServer, semconv.SpanReplica)
	if dropped {
		return ctx, Span{}
	}
	c := call{deployment: r.Deployment, app: r.App, method: s.CallMethod, verb: s.Method, modelID: r.ModelID, protocol: s.Protocol, streaming: s.Streaming}
	c.by(r)
	a := t.naming.atStart()
	name := c.attributes(&a, semconv.SpanReplica, r)
	a.replica(r.Component)
	return t.start(ctx, kindServer, name, a.list, c)
}

// EndReplica ends a replica span. Its status stays unset, as in Ray; an error is an
// event that did not escape. Call it once, when the handler has really returned.
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
		a.failure(a.of(protocol), r.Err, r.StatusCode)
	}
	return a.list
}
