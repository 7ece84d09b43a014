package ray

// differences are the allowed differences between Ray Serve's spans and ours. The first
// that fits counts.
var differences = []difference{
	// Identity, and attributes that only our spans have.
	{topic: identity, what: "serve.request_id", ray: nothing, ours: "*"},
	{topic: identity, what: "serve.task_id", ray: nothing, ours: "*"},
	{topic: identity, what: "serve.replica_id", ray: nothing, ours: "*"},
	{topic: "wait for a replica", families: []string{router}, what: "serve.queue_wait_ms", ray: nothing, ours: `"a float"`},
	{topic: "batch", what: "span", ray: nothing, ours: `"batch_execute Batched *"`},
	{topic: "model load", what: "span", ray: nothing, ours: `"model_load Models m1"`},

	// The route.
	{topic: route, families: []string{proxyHTTP}, what: "name", ray: `"proxy_http_request *"`, ours: `"proxy_http_request * {route}"`},
	{topic: route, families: []string{proxyHTTP}, what: "resource.name", ray: `"proxy_http_request *"`, ours: `"proxy_http_request * {route}"`},
	{topic: route, families: []string{proxyHTTP}, what: "http.route", ray: `"*"`, ours: `"{route}"`},
	{topic: route, families: []string{proxySocket}, what: "name", ray: `"proxy_websocket_request Api WS /chat"`, ours: `"proxy_websocket_request Api WS *"`},
	{topic: route, families: []string{proxySocket}, what: "resource.name", ray: `"proxy_websocket_request Api WS /chat"`, ours: `"proxy_websocket_request Api WS *"`},
	{topic: route, families: []string{proxySocket}, what: "http.route", ray: `"/chat"`, ours: `"*"`},

	{topic: socketRoute, families: []string{router, replica}, what: "route", ray: `"/api"`, ours: `"/api/chat"`},
	{topic: socketRoute, families: []string{router, replica}, what: "http.route", ray: `"/api"`, ours: `"/api/chat"`},

	{topic: "`http.status_code` of the replica span", families: []string{replica}, what: "http.status_code", ray: `"200"`, ours: "200"},
	{topic: "`http.status_code` of the replica span", families: []string{replica}, what: "http.status_code", ray: `"201"`, ours: "201"},
	{topic: "`http.status_code` of the replica span", families: []string{replica}, what: "http.status_code", ray: `"302"`, ours: "302"},
	{topic: "`http.status_code` of the replica span", families: []string{replica}, what: "http.status_code", ray: `"404"`, ours: "404"},
	{topic: "`http.status_code` of the replica span", families: []string{replica}, what: "http.status_code", ray: `"500"`, ours: "500"},
	{topic: "`http.status_code` of the replica span", families: []string{replica}, what: "http.status_code", ray: `"503"`, ours: "503"},

	// The context that the caller sent.
	{topic: "sampling", scenarios: []string{"caller unsampled*", "gRPC unary, unsampled"}, families: []string{replica}, what: "span", ray: "*", ours: nothing},
	{topic: "`tracestate`, baggage", scenarios: []string{"caller with tracestate"}, what: "tracestate", ray: `""`, ours: `"a=1"`},

	// Errors and their texts.
	{topic: texts, what: "event's exception.stacktrace", ray: `"(stack)"`, ours: nothing},
	{topic: texts, what: "event's exception.type", ray: `"RuntimeError"`, ours: `"*errors.errorString"`},
	{topic: texts, what: "event's exception.type", ray: `"ray.exceptions.RayTaskError(RuntimeError)"`, ours: `"*errors.errorString"`},
	{topic: texts, what: "event's exception.type", ray: `"ray.serve.exceptions.BackPressureError"`, ours: `"*serving.QueueFullError"`},
	{topic: texts, what: "event's exception.type", ray: `"ray.exceptions.RayTaskError(BackPressureError)"`, ours: `"*serving.QueueFullError"`},
	{topic: texts, what: "event's exception.type", ray: `"TimeoutError"`, ours: `"context.DeadlineExceeded"`},
	{topic: texts, what: "event's exception.type", ray: `"asyncio.exceptions.CancelledError"`, ours: `"context.Canceled"`},
	{topic: texts, what: "event's exception.type", ray: `"asyncio.exceptions.CancelledError"`, ours: `"context.DeadlineExceeded"`},
	{topic: texts, what: "event's exception.message", ray: `"(Ray's task error) RuntimeError: boom"`, ours: `"boom"`},
	{topic: texts, what: "event's exception.message", ray: `"(Ray's task error) ray.serve.exceptions.BackPressureError: ` + queueFull + `"`, ours: `"` + queueFull + `"`},
	{topic: texts, what: "event's exception.message", ray: `""`, ours: `"context deadline exceeded"`},
	{topic: texts, what: "event's exception.message", ray: `""`, ours: `"context canceled"`},
	{topic: texts, families: []string{"proxy_*"}, what: "description", ray: `"(Ray's task error) RuntimeError: boom"`, ours: `"boom"`},
	{topic: texts, families: []string{"proxy_*"}, what: "description", ray: `"(Ray's task error) ray.serve.exceptions.BackPressureError: ` + queueFull + `"`, ours: `"` + queueFull + `"`},

	// Failures after the response began.
	{topic: midStream, scenarios: []string{"timeout mid-stream", "client gone mid-stream"}, families: []string{proxyHTTP}, what: "status", ray: `"OK"`, ours: `"ERROR"`},
	{topic: midStream, scenarios: []string{"failure mid-stream"}, families: []string{proxyHTTP}, what: "status", ray: `"UNSET"`, ours: `"ERROR"`},
	{topic: midStream, scenarios: []string{"failure mid-stream"}, families: []string{proxyHTTP}, what: "description", ray: `""`, ours: `"boom"`},
	{topic: midStream, scenarios: []string{"failure mid-stream"}, families: []string{proxyHTTP}, what: "event", ray: `""`, ours: `"exception"`},
	{topic: midStream, scenarios: []string{"failure mid-stream"}, families: []string{proxyHTTP}, what: "http.method", ray: nothing, ours: `"GET"`},
	{topic: midStream, scenarios: []string{"failure mid-stream"}, families: []string{proxyHTTP}, what: "http.route", ray: nothing, ours: `"{route}"`},
	{topic: midStream, scenarios: []string{"failure mid-stream"}, families: []string{proxyHTTP}, what: "http.status_code", ray: nothing, ours: "200"},

	// Spans that get or lose values of other spans by chance. The values of Ray Serve
	// differ from one recording to the next, and ours do not.
	{topic: stack, scenarios: inQueue, families: []string{proxyHTTP}, what: "status", ray: "*", ours: `"ERROR"`},
	{topic: stack, scenarios: inQueue, families: []string{proxyHTTP}, what: "http.method", ray: "*", ours: `"GET"`},
	{topic: stack, scenarios: inQueue, families: []string{proxyHTTP}, what: "http.route", ray: "*", ours: `"{route}"`},
	{topic: stack, scenarios: []string{"timeout in the queue"}, families: []string{proxyHTTP}, what: "http.status_code", ray: "*", ours: "408"},
	{topic: stack, scenarios: []string{"client gone in the queue"}, families: []string{proxyHTTP}, what: "http.status_code", ray: "*", ours: "499"},
	{topic: stack, scenarios: inQueue, families: []string{router}, what: "status", ray: "*", ours: `"UNSET"`},
	{topic: stack, scenarios: inQueue, families: []string{router}, what: "http.method", ray: "*", ours: `"__call__"`},
	{topic: stack, scenarios: inQueue, families: []string{router}, what: "http.route", ray: "*", ours: `"/queue"`},
	{topic: stack, scenarios: inQueue, families: []string{router}, what: "http.status_code", ray: "*", ours: nothing},
	{topic: stack, scenarios: inQueue, families: []string{proxyHTTP, router}, what: "description", ray: "*", ours: `""`},
	{topic: stack, scenarios: inQueue, families: []string{proxyHTTP, router}, what: "event*", ray: "*", ours: "*"},
	{topic: stack, scenarios: parallel, families: []string{router}, what: "rpc.*", ray: "*", ours: "*"},
	{topic: stack, scenarios: []string{"timeout in a nested queue"}, families: []string{router}, what: "http.*", ray: "*", ours: nothing},
	{topic: stack, scenarios: []string{"timeout in a nested queue"}, families: []string{replica}, what: "http.*", ray: "*", ours: "*"},
	{topic: stack, scenarios: []string{"timeout in a nested queue"}, families: []string{router, replica}, what: "status", ray: "*", ours: "*"},
	{topic: stack, scenarios: []string{"timeout in a nested queue"}, families: []string{router, replica}, what: "description", ray: "*", ours: "*"},
	{topic: stack, scenarios: []string{"timeout in a nested queue"}, families: []string{router, replica}, what: "event*", ray: "*", ours: "*"},

	// Web sockets.
	{topic: closed, scenarios: []string{"socket closed by the client with 1000", "socket closed by the client with 1001"}, families: []string{proxySocket}, what: "status", ray: `"ERROR"`, ours: `"OK"`},
	{topic: unclosed, scenarios: []string{"socket whose handler fails"}, families: []string{proxySocket}, what: "http.status_code", ray: "500", ours: "1006"},
	{topic: unclosed, scenarios: []string{"socket whose client is gone"}, families: []string{proxySocket}, what: "http.status_code", ray: "1005", ours: "1006"},
	{topic: unclosed, scenarios: []string{"socket whose client is gone"}, families: []string{proxySocket, replica}, what: "event", ray: `""`, ours: `"exception"`},

	// Codes of gRPC.
	{topic: userCode, scenarios: []string{"gRPC client's code set"}, families: []string{proxyGRPC}, what: "rpc.grpc.status_code", ray: `"OK"`, ours: `"NOT_FOUND"`},
	{topic: userCode, scenarios: []string{"gRPC server's code set"}, families: []string{proxyGRPC}, what: "rpc.grpc.status_code", ray: `"OK"`, ours: `"UNAVAILABLE"`},
	{topic: userCode, scenarios: []string{"gRPC server's code set"}, families: []string{proxyGRPC}, what: "status", ray: `"OK"`, ours: `"ERROR"`},
	{topic: userCode, scenarios: []string{"gRPC server's code set"}, families: []string{proxyGRPC}, what: "description", ray: `""`, ours: `"rpc error: code = Unavailable desc = set"`},
	{topic: userCode, scenarios: []string{"gRPC server's code set"}, families: []string{proxyGRPC, replica}, what: "event", ray: `""`, ours: `"exception"`},
	{topic: texts, scenarios: raisedCode, families: []string{proxyGRPC}, what: "event's exception.type", ray: `"ray.exceptions.RayTaskError(gRPCStatusError)"`, ours: `"*status.Error"`},
	{topic: texts, scenarios: raisedCode, families: []string{replica}, what: "event's exception.type", ray: `"ray.serve.exceptions.gRPCStatusError"`, ours: `"*status.Error"`},
	{topic: texts, scenarios: raisedCode, what: "event's exception.message", ray: `"*boom"`, ours: `"boom: rpc error: code = InvalidArgument desc = set"`},
	{topic: texts, scenarios: raisedCode, families: []string{proxyGRPC}, what: "description", ray: `"*boom"`, ours: `"boom: rpc error: code = InvalidArgument desc = set"`},
}

// queueFull is Ray's text, and ours.
const queueFull = "Request dropped due to backpressure (num_queued_requests=1, max_queued_requests=1)."

var (
	inQueue  = []string{"timeout in the queue", "client gone in the queue"}
	parallel = []string{"parallel calls", "timeout in a nested queue"}

	raisedCode = []string{"gRPC raise with a code"}
)

// The families, and topics that several differences share.
const (
	proxyHTTP   = "proxy_http_request"
	proxySocket = "proxy_websocket_request"
	proxyGRPC   = "proxy_grpc_request"
	router      = "route_to_replica"
	replica     = "replica_handle_request"

	identity    = "request, task and replica of the handler's own spans"
	route       = "`http.route`, and the route in the proxy span's name"
	socketRoute = "route of a web socket, on router and replica spans"
	texts       = "types and texts of exceptions"
	midStream   = "failure after the response began"
	stack       = "parents"
	closed      = "web socket that the client closed with 1000 or 1001"
	userCode    = "gRPC code that user code set without an exception"
	unclosed    = "web socket without a close frame"
)
