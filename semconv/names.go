package semconv

// Span families. A span's name is its family, one space, the deployment, and
// one or two further words as given here. The three that Ray Serve has are of
// kind SERVER; the two that it lacks, SpanBatch and SpanModelLoad, are INTERNAL.
const (
	// SpanProxyHTTP begins "proxy_http_request DEPLOYMENT METHOD ROUTE", one
	// per HTTP request that matched a route.
	SpanProxyHTTP = "proxy_http_request"
	// SpanProxyWebSocket begins "proxy_websocket_request DEPLOYMENT WS ROUTE",
	// one per socket, which it lasts as long as.
	SpanProxyWebSocket = "proxy_websocket_request"
	// SpanProxyGRPC begins "proxy_grpc_request DEPLOYMENT /pkg.Service/Method",
	// one per RPC that matched an application.
	SpanProxyGRPC = "proxy_grpc_request"
	// SpanRouter begins "route_to_replica DEPLOYMENT CALLMETHOD", one per call
	// of a deployment. It ends when a replica accepted the request.
	SpanRouter = "route_to_replica"
	// SpanReplica begins "replica_handle_request DEPLOYMENT CALLMETHOD", one
	// per accepted request. It ends when the handler has finished.
	SpanReplica = "replica_handle_request"
	// SpanBatch begins "batch_execute DEPLOYMENT NAME", one per run of a batched
	// function, NAME being the function's. Its parent is the current span of the
	// first sampled request of the batch; it links to those of the others.
	SpanBatch = "batch_execute"
	// SpanModelLoad begins "model_load DEPLOYMENT MODEL", one per load of a
	// multiplexed model, in the trace of the request that asked for it first.
	SpanModelLoad = "model_load"
)

// EventException is the name of the event that records an error. Its
// attributes are the Exception keys.
const EventException = "exception"

// DefaultCallMethod is the call method of an HTTP request, as in Ray.
const DefaultCallMethod = "__call__"

// MethodWebSocket stands where an HTTP verb would on the spans of a web
// socket.
const MethodWebSocket = "WS"

// DefaultApp is the name of an application that was given none.
const DefaultApp = "default"
