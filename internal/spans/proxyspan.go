package spans

import (
	"context"
	"net"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
)

// Protocol is how a call reached its component.
type Protocol uint8

// The protocols.
const (
	HTTP      Protocol = iota
	WebSocket          // an HTTP request that was upgraded
	GRPC               // of any of the four kinds
	Handle             // a call from one deployment to another; never at a proxy
)

// String returns "http", "websocket", "grpc" or "handle"; the first three are
// the values of the attribute request_type.
func (p Protocol) String() string {
	switch p {
	case HTTP:
		return semconv.RequestTypeHTTP
	case WebSocket:
		return semconv.RequestTypeWebSocket
	case GRPC:
		return semconv.RequestTypeGRPC
	default:
		return "handle"
	}
}

// overHTTP says whether the spans carry http.* attributes rather than rpc.*.
func (p Protocol) overHTTP() bool { return p == HTTP || p == WebSocket }

// ProxyStart is what is known when the proxy has matched a route.
type ProxyStart struct {
	// Request is the request's identity in the proxy. Required; ID, App,
	// Deployment and Route are read.
	Request *identity.Request
	// Protocol is HTTP, WebSocket or GRPC.
	Protocol Protocol
	// Method is the HTTP verb, in any case, or whatever the client sent for one:
	// spans show semconv.Method of it. For gRPC it is the full method with its
	// leading slash. It is not read for web sockets.
	Method string
	// RoutePath is the raw path left after the route prefix: "/predict" for
	// /app1/predict under /app1, empty for /app1. HTTP and web sockets only.
	RoutePath string
	// HTTPRequest is the request as it came, with its whole path. For gRPC,
	// Metadata is the call's, with its ":authority", and Peer gives the other end
	// of the connection that ctx, that of StartProxy, belongs to; nil where it
	// is not known. They are optional, for facts that only today's names have
	// (Config.Semconv): StartProxy looks at them where such a span records, so
	// that nobody else pays, and keeps none of them.
	HTTPRequest *http.Request
	Metadata    map[string][]string
	Peer        func(ctx context.Context) net.Addr
}

// ProxyResult is how a request ended, as its client saw it.
type ProxyResult struct {
	// StatusCode is the HTTP status that the client saw, also where the
	// response failed later; 499 for a client that left before it started; a
	// web socket's close code, or the status of the response that refused it.
	// Not read for gRPC.
	StatusCode int
	// GRPCCode is the code's name ("OK", "INTERNAL"); empty means UNKNOWN. Read
	// for gRPC only.
	GRPCCode string
	// Err is what ended the response: the handler's error or panic, before or
	// after the response started; context.DeadlineExceeded for a timeout and
	// context.Canceled for a client that left, unwrapped, which then give no
	// description. Nil where the handler answered, whatever the status.
	Err error
}

// Failed says whether the proxy span of a request of protocol p that ended so is
// an error: for a result with an error, for a status of 4xx or 5xx, for a close
// code other than 1000 and 1001 and for a gRPC code that counts as a server's
// fault. It holds for requests without a span too.
func (r ProxyResult) Failed(p Protocol) bool {
	switch {
	case r.Err != nil:
		return true
	case p == GRPC:
		return r.GRPCCode == "" || serverFault(r.GRPCCode)
	case p == WebSocket:
		return r.StatusCode >= 400 && r.StatusCode < leastCloseCode || r.StatusCode > 1001
	default:
		return r.StatusCode >= 400
	}
}

// StartProxy starts the proxy span as a child of the span in ctx (see Extract),
// or as the root of a new trace. The returned context carries the Request and
// the sampling decision, whether or not the span records.
func (t *Tracer) StartProxy(ctx context.Context, s ProxyStart) (context.Context, Span) {
	r := s.Request
	r.Came = ctx
	if s.Protocol == GRPC {
		r.RPCMethod = s.Method
	}
	ctx = r.Carry(ctx)
	family := semconv.SpanProxyHTTP
	switch s.Protocol {
	case WebSocket:
		family = semconv.SpanProxyWebSocket
	case GRPC:
		family = semconv.SpanProxyGRPC
	}
	ctx, dropped := t.unsampled(ctx, kindServer, family)
	if dropped {
		return ctx, Span{}
	}
	a := t.naming.atStart()
	name := s.attributes(ctx, &a, family)
	return t.start(ctx, kindServer, name, a.list, call{protocol: s.Protocol, verb: s.Method, route: r.Route, rpcMethod: r.RPCMethod})
}

// attributes adds the attributes of the start, and returns the span's name.
func (s ProxyStart) attributes(ctx context.Context, a *attributes, family string) (name string) {
	r, method := s.Request, s.Method
	switch s.Protocol {
	case GRPC:
		name = family + " " + r.Deployment + " " + method
	case WebSocket:
		method = semconv.MethodWebSocket
		name = family + " " + r.Deployment + " " + method + " " + r.Route
	default:
		method = semconv.Method(method)
		name = family + " " + r.Deployment + " " + method + " " + r.Route
	}
	a.request(r)
	a.owner(r.Deployment, r.App)
	a.serveText(semconv.RequestType, semconv.ServeRequestType, s.Protocol.String())
	a.text(semconv.ResourceName, name)
	if s.Protocol.overHTTP() {
		a.serveText(semconv.RequestMethod, semconv.ServeRequestMethod, method)
		a.serveText(semconv.RequestRoutePath, semconv.ServeRequestRoutePath, s.RoutePath)
	}
	a.edge(ctx, s)
	return name
}

// EndProxy ends a proxy span with its status: ERROR for a result that has Failed, else
// OK. Call it once, when the last byte is with the client or nothing more will follow.
func (s Span) EndProxy(r ProxyResult) {
	if s.span == nil {
		return
	}
	if r.GRPCCode == "" {
		r.GRPCCode = "UNKNOWN"
	}
	failed := r.Failed(s.call.protocol)
	s.span.SetAttributes(s.proxyEnd(r, failed)...)
	if !failed {
		s.span.SetStatus(codes.Ok, "")
		s.span.End()
		return
	}
	if r.Err != nil {
		recordException(s.span, r.Err, semconv.EscapedTrue)
	}
	s.span.SetStatus(codes.Error, description(r.Err))
	s.span.End()
}

func (s Span) proxyEnd(r ProxyResult, failed bool) []attribute.KeyValue {
	a, c := s.naming.atEnd(), s.call
	if c.protocol == GRPC {
		a.rpcRequest(c.rpcMethod)
		a.rpcStatus(r.GRPCCode)
		if failed && a.rpc.stable() {
			a.text(semconv.ErrorType, r.GRPCCode)
		}
		return a.list
	}
	a.text(semconv.HTTPRoute, c.route)
	a.httpMethod(c.protocol, c.verb)
	a.httpEnd(c.protocol, r.StatusCode)
	if failed {
		a.failure(a.http, r.Err, r.StatusCode)
	}
	return a.list
}

// serverFault says which codes, set by user code without an error, make a
// server's span an error.
//
// Source: https://opentelemetry.io/docs/specs/semconv/rpc/grpc/
func serverFault(code string) bool {
	switch code {
	case "UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS":
		return true
	}
	return false
}
