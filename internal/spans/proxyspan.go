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

// Protocol is the protocol of a call to a component.
type Protocol uint8

// The protocols.
const (
	HTTP      Protocol = iota
	WebSocket          // an upgraded HTTP request
	GRPC               // any of gRPC's four kinds
	Handle             // a call of a deployment by another deployment; never in a proxy
)

// String returns "http", "websocket", "grpc" or "handle". The first three are the
// values of the attribute request_type.
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

// overHTTP reports whether the spans have http.* attributes and not rpc.* attributes.
func (p Protocol) overHTTP() bool { return p == HTTP || p == WebSocket }

// ProxyStart describes a request that has matched a route.
type ProxyStart struct {
	// Request is the request's identity in the proxy. Required. ID, App, Deployment and
	// Route must be set.
	Request *identity.Request
	// Protocol is HTTP, WebSocket or GRPC.
	Protocol Protocol
	// Method is the HTTP verb as the client sent it, in any case; spans show
	// semconv.Method of it. For gRPC it is the full method with its leading slash. Not
	// used for web sockets.
	Method string
	// RoutePath is the raw path after the route prefix: "/predict" for /app1/predict
	// under /app1, empty for /app1. HTTP and web sockets only.
	RoutePath string
	// HTTPRequest is the inbound request, with its whole path. For gRPC, Metadata is the
	// call's metadata with ":authority". Peer returns the peer address of the connection
	// of StartProxy's ctx, or nil if it is unknown. The three are optional, for
	// attributes that exist only in the current names (Config.Semconv). StartProxy reads
	// them only for a span with such attributes, and keeps none of them.
	HTTPRequest *http.Request
	Metadata    map[string][]string
	Peer        func(ctx context.Context) net.Addr
}

// ProxyResult is the end of a request as its client saw it.
type ProxyResult struct {
	// StatusCode is the HTTP status that the client received, even if the response
	// failed later. 499 if the client left before the response. For a web socket it is
	// the close code, or the status of the response that refused it. Not used for gRPC.
	StatusCode int
	// GRPCCode is the code's name ("OK", "INTERNAL"); empty means UNKNOWN. Used for
	// gRPC only.
	GRPCCode string
	// Err is the error that ended the response: the handler's error or panic, before or after
	// the response started. It is context.DeadlineExceeded for a timeout and context.Canceled
	// for a client that left, unwrapped. For these two errors the span's status has no
	// description. Err is nil if the handler answered, with any status.
	Err error
}

// Failed reports whether the proxy span of a request of protocol p with this result is an
// error. The result is an error if Err is set. A status is an error if it is 4xx or 5xx,
// and a close code if it is neither 1000 nor 1001. A gRPC code is an error if it is
// missing or means a server's fault. Failed may also be used for requests without a span.
func (r ProxyResult) Failed(p Protocol) bool {
	switch {
	case r.Err != nil:
		return true
	case p == GRPC:
		return r.GRPCCode == "" || serverFault(r.GRPCCode)
	case p == WebSocket:
		return r.StatusCode >= 400 && r.StatusCode < minCloseCode || r.StatusCode > 1001
	default:
		return r.StatusCode >= 400
	}
}

// StartProxy starts the proxy span. Its parent is the span in ctx, which
// tracing.Provider.Extract has read from the request. If there is none, the span is the root
// of a new trace. The returned context carries the Request and the sampling decision, even if
// the span does not record.
func (t *Tracer) StartProxy(ctx context.Context, s ProxyStart) (context.Context, Span) {
	r := s.Request
	r.Inbound = ctx
	if s.Protocol == GRPC {
		r.RPCMethod = s.Method
	}
	ctx = identity.ContextWithRequest(ctx, r)
	family := s.family()
	ctx, dropped := t.dropUnsampled(ctx, family)
	if dropped {
		return ctx, Span{}
	}
	a := t.naming.atStart()
	name := s.attributes(ctx, &a, family)
	return t.start(ctx, name, a.list, call{protocol: s.Protocol, verb: s.Method, route: r.Route, rpcMethod: r.RPCMethod}, kindServer)
}

// family returns the first word of the proxy span's name, which depends on the protocol.
func (s ProxyStart) family() string {
	switch s.Protocol {
	case WebSocket:
		return semconv.SpanProxyWebSocket
	case GRPC:
		return semconv.SpanProxyGRPC
	default:
		return semconv.SpanProxyHTTP
	}
}

// attributes adds the attributes that a proxy span has at its start, and returns the name of
// the span.
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
	a.inbound(ctx, s)
	return name
}

// EndProxy ends a proxy span. Its status is ERROR if r.Failed reports true, else OK. Call
// it once, when the last byte was sent to the client or nothing more will be sent.
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

// proxyEnd returns the attributes at the end of a proxy span.
func (s Span) proxyEnd(r ProxyResult, failed bool) []attribute.KeyValue {
	a, c := s.naming.atEnd(), s.call
	if c.protocol == GRPC {
		a.rpcRequest(c.rpcMethod)
		a.rpcStatus(r.GRPCCode)
		if failed && a.naming.rpc.stable() {
			a.text(semconv.ErrorType, r.GRPCCode)
		}
		return a.list
	}
	a.text(semconv.HTTPRoute, c.route)
	a.httpMethod(c.protocol, c.verb)
	a.httpEnd(c.protocol, r.StatusCode)
	if failed {
		a.failure(a.naming.http, r.Err, r.StatusCode)
	}
	return a.list
}

// serverFault reports whether a gRPC code that user code returned without an error
// makes a server's span an error.
//
// Source: https://opentelemetry.io/docs/specs/semconv/rpc/grpc/
func serverFault(code string) bool {
	switch code {
	case "UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS":
		return true
	}
	return false
}
