package tracing

import (
	"context"

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
	// Method is as in ProxyStart. Read for HTTP only.
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

// ReplicaSpan is the span of one call in a replica. The zero value is that of
// an unsampled request: its End does nothing.
type ReplicaSpan struct {
	span  trace.Span
	start ReplicaStart
}

// StartReplica starts the replica span as a child of the span in ctx, which
// should be the router's. The returned context carries the Request; it is what
// the handler gets, and the user's own spans become children of this one.
func (p *Provider) StartReplica(ctx context.Context, s ReplicaStart) (context.Context, ReplicaSpan) {
	if outer := RequestFromContext(ctx); outer != nil {
		s.Request.came = outer.came
	}
	ctx = ContextWithRequest(ctx, s.Request)
	ctx, span := p.start(ctx, semconv.SpanReplica, serverKind)
	if span == nil {
		return ctx, ReplicaSpan{}
	}
	if s.CallMethod == "" {
		s.CallMethod = semconv.DefaultCallMethod
	}
	r := s.Request
	name := semconv.SpanReplica + " " + r.Deployment + " " + s.CallMethod
	span.SetName(name)
	attrs := newAttributes()
	attrs.text(semconv.RequestID, r.ID)
	attrs.text(semconv.Deployment, r.Deployment)
	attrs.text(semconv.App, r.App)
	attrs.text(semconv.CallMethod, s.CallMethod)
	attrs.text(semconv.Route, r.Route)
	attrs.text(semconv.MultiplexedModelID, r.ModelID)
	attrs.flag(semconv.IsStreaming, s.Streaming || s.Protocol.overHTTP())
	attrs.text(semconv.ResourceName, name)
	if r.Component != nil {
		attrs.text(semconv.ReplicaID, r.Component.uniqueID)
	}
	attrs.stamp(r)
	attrs.setOn(span)
	return ctx, ReplicaSpan{span: span, start: s}
}

// Recording says whether the span records; for work that only a recorded span
// is worth.
func (s ReplicaSpan) Recording() bool { return s.span != nil }

// Context returns the span's context; zero where it does not record.
func (s ReplicaSpan) Context() trace.SpanContext { return contextOf(s.span) }

// End ends the span. Its status stays unset, as in Ray; an error is an event
// that did not escape. Call it once, when the handler has really returned.
func (s ReplicaSpan) End(r ReplicaResult) {
	if s.span == nil {
		return
	}
	s.endAttributes(r.StatusCode)
	if r.Err != nil {
		recordException(s.span, r.Err, semconv.EscapedFalse)
	}
	s.span.End()
}

func (s ReplicaSpan) endAttributes(status int) {
	attrs := newAttributes()
	req := s.start.Request
	switch s.start.Protocol {
	case HTTP:
		attrs.text(semconv.HTTPMethod, semconv.Method(s.start.Method))
		attrs.text(semconv.HTTPRoute, req.Route)
		if status != 0 {
			attrs.number(semconv.HTTPStatusCode, status)
		}
	case WebSocket:
		attrs.text(semconv.HTTPMethod, semconv.MethodWebSocket)
		attrs.text(semconv.HTTPRoute, req.Route)
	default:
		attrs.rpc(s.start.Protocol, s.start.CallMethod, req.Deployment)
	}
	attrs.setOn(s.span)
}
