package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
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
	// At is when the replica took over, by Clock; 0 for now. It is that of the
	// RouterResult where one goroutine goes on from there.
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
	// At is when the handler returned, by Clock; 0 for now.
	At time.Duration
}

// ReplicaSpan is the span of one call in a replica. The zero value is that of
// an unsampled request: its End does nothing.
type ReplicaSpan struct {
	span   *span
	shape  *spanShape
	method string // as in ReplicaStart
}

// StartReplica starts the replica span as a child of the span in ctx, which
// should be the router's. The returned context carries the Request; it is what
// the handler gets, and the user's own spans become children of this one.
func (p *Provider) StartReplica(ctx context.Context, s ReplicaStart) (context.Context, ReplicaSpan) {
	if outer := RequestFromContext(ctx); outer != nil && outer != s.Request {
		s.Request.came, s.Request.rpcMethod = outer.came, outer.rpcMethod
	}
	ctx = s.Request.carry(ctx)
	if p.tracer == nil {
		return ctx, ReplicaSpan{}
	}
	r := s.Request
	room := p.naming.room(0, 40)
	if s.Protocol.overHTTP() {
		room += p.naming.room(50, 70)
	}
	ctx, span := p.start(ctx, &r.within, p.families.replica, trace.SpanKindServer, room, s.At)
	if span == nil {
		return ctx, ReplicaSpan{}
	}
	if s.CallMethod == "" {
		s.CallMethod = semconv.DefaultCallMethod
	}
	kind := spanKind{
		family: p.families.replica, deployment: r.Deployment, app: r.App, method: s.CallMethod, route: r.Route,
		modelID: r.ModelID, protocol: s.Protocol, streaming: s.Streaming,
	}
	kind.by(r)
	shape, isNew := p.shape(r.Component, &kind, drawReplica)
	attrs := span.begin()
	attrs.call(r)
	attrs.shape(shape, isNew)
	attrs.begin()
	return ctx, ReplicaSpan{span: span, shape: shape, method: s.Method}
}

func drawReplica(a, end *attributes, k spanKind, c *Component) string {
	name := k.called(a)
	a.text(semconv.ResourceName, name)
	a.replica(c)
	if k.protocol.overHTTP() {
		end.text(semconv.HTTPRoute, k.route)
	} else {
		end.rpcCall(k)
	}
	return name
}

// Recording says whether the span records; for work that only a recorded span
// is worth.
func (s ReplicaSpan) Recording() bool { return s.span != nil }

// Context returns the span's context; zero where it does not record.
func (s ReplicaSpan) Context() trace.SpanContext { return s.span.context() }

// End ends the span. Its status stays unset, as in Ray; an error is an event
// that did not escape. Call it once, when the handler has really returned.
func (s ReplicaSpan) End(r ReplicaResult) {
	if s.span == nil {
		return
	}
	end := s.span.time(r.At)
	kind := failureType(s.span.provider.naming.of(s.shape.protocol), r.Err)
	attrs := s.span.attributes()
	s.endAttributes(&attrs, r, kind)
	if r.Err == nil {
		attrs.end(codes.Unset, end)
		return
	}
	attrs.set()
	recordException(s.span, end, r.Err, semconv.EscapedFalse)
	s.span.endAt(end)
}

func (s ReplicaSpan) endAttributes(attrs *attributes, r ReplicaResult, kind string) {
	protocol := s.shape.protocol
	attrs.endShape(s.shape)
	if protocol.overHTTP() {
		attrs.httpMethod(protocol, s.method)
		if protocol == HTTP && r.StatusCode != 0 {
			attrs.httpEnd(protocol, r.StatusCode)
		}
	}
	if r.Err != nil || protocol == HTTP && r.StatusCode >= 500 {
		attrs.failure(attrs.of(protocol), kind, r.StatusCode)
	}
}
