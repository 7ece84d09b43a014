package semconv

// Ray Serve's own attributes, in the modes "ray" and "dup".
const (
	// RequestID is a string: the X-Request-ID header or the gRPC metadata key
	// request_id of the request, or a UUID (version 4) where it had none. On
	// all families; on a batch it is that of the request whose span is the
	// parent.
	RequestID = "request_id"
	// Deployment is a string: the deployment called. On all families.
	Deployment = "deployment"
	// App is a string: the application's name. On all families.
	App = "app"
	// RequestType is a string: "http", "websocket" or "grpc". Proxy only.
	RequestType = "request_type"
	// RequestMethod is a string: the upper-case verb, "_OTHER" or "WS". Proxy, not
	// gRPC.
	RequestMethod = "request_method"
	// RequestRoutePath is a string: the raw path left after the matched route
	// prefix; empty where nothing is left. Proxy, not gRPC.
	RequestRoutePath = "request_route_path"
	// ResourceName is a string, always the span's own name. Datadog shows it.
	// On all families, in every mode.
	ResourceName = "resource.name"
	// CallMethod is a string: "__call__" for HTTP, the method's last part for
	// gRPC, the method's name for a call by handle. Router and replica.
	CallMethod = "call_method"
	// Route is a string: the matched route pattern where the application shows
	// one, else the route prefix; for gRPC the application's name. Router and
	// replica.
	Route = "route"
	// MultiplexedModelID is a string, empty where the request names no model.
	// Router, replica, batch, and model load, where it is the model's that is
	// loaded.
	MultiplexedModelID = "multiplexed_model_id"
	// IsStreaming is a bool, always true for HTTP. Router and replica.
	IsStreaming = "is_streaming"
	// IsHTTPRequest is a bool. Router only.
	IsHTTPRequest = "is_http_request"
	// IsGRPCRequest is a bool. Router only.
	IsGRPCRequest = "is_grpc_request"
	// ReplicaID is a string: the replica's unique id, eight characters, without
	// application and deployment. Replica, batch and model load.
	ReplicaID = "replica_id"
)

// Values of RequestType.
const (
	RequestTypeHTTP      = "http"
	RequestTypeWebSocket = "websocket"
	RequestTypeGRPC      = "grpc"
)

// HTTP and RPC attributes under the names that Ray Serve gives them, which are
// OpenTelemetry's of before 2023; in the modes "ray" and "dup".
const (
	// HTTPMethod is a string: the upper-case verb, "_OTHER" or "WS". On the router span
	// it is the call method, as in Ray. HTTP only.
	HTTPMethod = "http.method"
	// HTTPStatusCode is an int, everywhere: the status that the client saw; 499
	// for a client that left first; a web socket's close code on the proxy.
	// Proxy and replica; absent on the replica where no response was started.
	HTTPStatusCode = "http.status_code"
	// HTTPRoute is a string: the route pattern where the application shows one,
	// else the route prefix. All three families, HTTP only, in every mode.
	HTTPRoute = "http.route"
	// RPCSystem is a string: "grpc" on the proxy, "gRPC" on the router and the
	// replica of a gRPC request, "UNDEFINED" for a call by handle.
	RPCSystem = "rpc.system"
	// RPCMethod is a string: the full method on the proxy, with its leading
	// slash; the call method on router and replica. Not HTTP. In the modes
	// "stable" and "dup" it is today's, see stable.go.
	RPCMethod = "rpc.method"
	// RPCService is a string: the deployment. Router and replica, not HTTP.
	RPCService = "rpc.service"
	// RPCGRPCStatusCode is a string, the code's name ("OK", "INTERNAL");
	// "UNKNOWN" where there is none. Proxy of gRPC.
	RPCGRPCStatusCode = "rpc.grpc.status_code"
)

// Values of RPCSystem.
const (
	RPCSystemGRPCProxy = "grpc"
	RPCSystemGRPC      = "gRPC"
	RPCSystemUndefined = "UNDEFINED"
)

// Attributes of the exception event, in every mode.
const (
	// ExceptionType is a string: the Go type of the error, or "panic".
	ExceptionType = "exception.type"
	// ExceptionMessage is a string: the error's text.
	ExceptionMessage = "exception.message"
	// ExceptionStacktrace is a string, present for panics only.
	ExceptionStacktrace = "exception.stacktrace"
	// ExceptionEscaped is a string, as in Ray: "True" where the error ended the
	// span's work (proxy, router), "False" on the replica, which answered it.
	ExceptionEscaped = "exception.escaped"
)

// Values of ExceptionEscaped.
const (
	EscapedTrue  = "True"
	EscapedFalse = "False"
)

// Our own attributes, which Ray Serve has no counterpart of; in every mode.
const (
	// ServeRequestID is a string, the value of RequestID, on every recording
	// span inside a request, the user's own among them.
	ServeRequestID = "serve.request_id"
	// ServeTaskID is a string of 48 lower-case hexadecimal digits, one per
	// handled call: 8 bytes of its own, then the actor id of the proxy or
	// replica (12 bytes of its own, then the job id of 4). On every recording
	// span inside a request.
	ServeTaskID = "serve.task_id"
	// ServeReplicaID is a string "APP#DEPLOYMENT#UNIQUEID", on every recording
	// span inside a replica; absent in a proxy.
	ServeReplicaID = "serve.replica_id"
	// ServeQueueWaitMS is a float64: the milliseconds that the request waited
	// for a slot in a replica, to the microsecond; 0 where it had none to wait
	// for. Router.
	ServeQueueWaitMS = "serve.queue_wait_ms"
	// ServeBatchSize is an int, 1 or more: how many requests the batch was made
	// of, unsampled ones among them. Batch.
	ServeBatchSize = "serve.batch_size"
)

// Ray's identity, which no part of the runtime emits: a plugin makes it of
// ServeTaskID and ServeRequestID (pluginsdk/processors, raycontext), as the
// RayServeSpanProcessor of Anyscale's tracing guide does in Ray.
const (
	// RayJobID is a string of 8 lower-case hexadecimal digits.
	RayJobID = "ray.job_id"
	// RayActorID is a string of 32: that of the proxy or replica. It ends in the
	// job's.
	RayActorID = "ray.actor_id"
	// RayTaskID is a string of 48, one per handled call. It ends in the actor's.
	RayTaskID = "ray.task_id"
	// RayRequestID is a string, the value of RequestID.
	RayRequestID = "ray.request_id"
)

// Resource attributes.
const (
	// ServiceName is a string: OTEL_SERVICE_NAME, or service.name of
	// OTEL_RESOURCE_ATTRIBUTES, or "unknown_service:EXECUTABLE".
	ServiceName = "service.name"
	// ServiceInstanceID is a string: a UUID drawn at start, unless the user
	// gives one.
	ServiceInstanceID = "service.instance.id"
	// HostName is a string: the machine's name.
	HostName = "host.name"
	// ProcessPID is an int.
	ProcessPID = "process.pid"
	// TelemetrySDKLanguage is a string, "go".
	TelemetrySDKLanguage = "telemetry.sdk.language"
	// TelemetrySDKName is a string, "opentelemetry".
	TelemetrySDKName = "telemetry.sdk.name"
	// TelemetrySDKVersion is a string: the version of OpenTelemetry's Go SDK.
	TelemetrySDKVersion = "telemetry.sdk.version"
)
