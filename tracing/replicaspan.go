package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/semconv"
)

// ReplicaStart is what is known when a replica accepted a request.
type ReplicaStart struct {
	// Request is the request's identity in this replica, with the replica as
	// its Component. Required.
	Request *Request
	// Protocol is that of the call.
	Protocol Protocol
	// CallMethod is the method called; empty means "__call__".
	CallMethod string
	// Method is as in ProxyStart. Read for HTTP and web sockets only.
	Method string
	// Streaming says whether the answer is a stream. HTTP always counts as one.
	Streaming bool
	// At is not read. Deprecated: the SDK takes the time.
	At time.Duration
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
	// At is not read. Deprecated: the SDK takes the time.
	At time.Duration
}

// ReplicaSpan is the span of one call in a replica. The zero value is that of
// an unsampled request: its End does nothing.
type ReplicaSpan struct {
	span   trace.Span // nil if it does not record
	naming naming
	call   call
	method string // as in ReplicaStart
}

// StartReplica starts the replica span as a child of the span in ctx, which
// should be the router's. The returned context carries the Request; it is what
// the handler gets, and the user's own spans become children of this one.
func (p *Provider) StartReplica(ctx context.Context, s ReplicaStart) (context.Context, ReplicaSpan) {
	r := s.Request
	if outer := RequestFromContext(ctx); outer != nil && outer != r {
		r.came, r.rpcMethod = outer.came, outer.rpcMethod
	}
	ctx, dropped := p.unsampled(r.carry(ctx), kindServer, semconv.SpanReplica)
	if dropped {
		return ctx, ReplicaSpan{}
	}
	c := call{deployment: r.Deployment, app: r.App, method: s.CallMethod, modelID: r.ModelID, protocol: s.Protocol, streaming: s.Streaming}
	c.by(r)
	a := p.naming.atStart()
	name := c.attributes(&a, semconv.SpanReplica, r)
	a.replica(r.Component)
	ctx, span := p.start(ctx, kindServer, name, a.list)
	if span == nil {
		return ctx, ReplicaSpan{}
	}
	return ctx, ReplicaSpan{span: span, naming: p.naming, call: c, method: s.Method}
}

// Recording says whether the span records; for work that only a recorded span
// is worth.
func (s ReplicaSpan) Recording() bool { return s.span != nil }

// Context returns the span's context; zero if it does not record.
func (s ReplicaSpan) Context() trace.SpanContext { return contextOf(s.span) }

// End ends the span. Its status stays unset, as in Ray; an error is an event
// that did not escape. Call it once, when the handler has really returned.
func (s ReplicaSpan) End(r ReplicaResult) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(s.endAttributes(r)...)
	if r.Err != nil {
		recordException(s.span, r.Err, semconv.EscapedFalse)
	}
	s.span.End()
}

func (s ReplicaSpan) endAttributes(r ReplicaResult) []attribute.KeyValue {
	a, protocol := s.naming.atEnd(), s.call.protocol
	if protocol.overHTTP() {
		a.text(semconv.HTTPRoute, s.call.route)
		a.httpMethod(protocol, s.method)
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
