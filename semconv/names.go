package semconv

// Span families. A span's name is its family, a space, the deployment, and one or two
// further words as listed here. Ray Serve's three families have the kind SERVER.
// SpanBatch and SpanModelLoad, which Ray Serve lacks, have the kind INTERNAL.
const (
	// SpanProxyHTTP is the first word of the span name "proxy_http_request DEPLOYMENT
	// METHOD ROUTE". There is such a span for each HTTP request that matched a route.
	SpanProxyHTTP = "proxy_http_request"
	// SpanProxyWebSocket is the first word of the span name "proxy_websocket_request
	// DEPLOYMENT WS ROUTE". There is such a span for each web socket, from its handshake
	// to its close.
	SpanProxyWebSocket = "proxy_websocket_request"
	// SpanProxyGRPC is the first word of the span name "proxy_grpc_request DEPLOYMENT
	// /pkg.Service/Method". There is such a span for each RPC that matched an application.
	SpanProxyGRPC = "proxy_grpc_request"
	// SpanRouter is the first word of the span name "route_to_replica DEPLOYMENT
	// CALLMETHOD". There is such a span for each call of a deployment. It ends when a
	// replica has accepted the request.
	SpanRouter = "route_to_replica"
	// SpanReplica is the first word of the span name "replica_handle_request DEPLOYMENT
	// CALLMETHOD". There is such a span for each accepted request. It ends when the
	// handler has finished.
	SpanReplica = "replica_handle_request"
	// SpanBatch is the first word of the span name "batch_execute DEPLOYMENT NAME". There
	// is such a span for each run of the batched function NAME. Its parent is the current
	// span of the batch's first sampled request. It links to the current spans of the
	// other requests.
	SpanBatch = "batch_execute"
	// SpanModelLoad is the first word of the span name "model_load DEPLOYMENT MODEL".
	// There is such a span for each load of a multiplexed model, in the trace of the first
	// request that asked for it.
	SpanModelLoad = "model_load"
)

// EventException is the name of the event that records an error. Its attributes are the
// Exception keys.
const EventException = "exception"

// DefaultCallMethod is the call method of an HTTP request, as in Ray.
const DefaultCallMethod = "__call__"

// MethodWebSocket replaces the HTTP verb on the spans of a web socket.
const MethodWebSocket = "WS"

// DefaultApp is the name of an application without a name of its own.
const DefaultApp = "default"
