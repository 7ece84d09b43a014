package semconv

// Ray Serve's own attributes, in the modes "ray" and "dup". Each comment ends with the spans
// that have the attribute.
const (
	// RequestID is a string: the X-Request-ID header or the gRPC metadata key request_id
	// of the request, or else a UUID (version 4). All spans of the runtime have it. On a
	// batch span it is the id of the request with the parent span.
	RequestID = "request_id"
	// Deployment is a string: the name of the called deployment. All spans of the runtime
	// have it.
	Deployment = "deployment"
	// App is a string: the application's name. All spans of the runtime have it.
	App = "app"
	// RequestType is a string: "http", "websocket" or "grpc". Proxy spans have it.
	RequestType = "request_type"
	// RequestMethod is a string: the upper-case verb, "_OTHER" or "WS". Proxy spans have
	// it, except for gRPC.
	RequestMethod = "request_method"
	// RequestRoutePath is a string: the raw path after the matched route prefix; may be
	// empty. Proxy spans have it, except for gRPC.
	RequestRoutePath = "request_route_path"
	// ResourceName is a string, always the span's own name. Datadog displays it. All spans
	// of the runtime have it, in every mode.
	ResourceName = "resource.name"
	// CallMethod is a string: "__call__" for HTTP, the last part of the method for gRPC,
	// the method's name for a call by handle. Router and replica spans have it.
	CallMethod = "call_method"
	// Route is a string: the matched route pattern if the application reports it, else the
	// route prefix. For gRPC it is the application's name. Router and replica spans have
	// it.
	Route = "route"
	// MultiplexedModelID is a string, empty if the request names no model. Router, replica
	// and batch spans have it. On a model load span it is the id of the loaded model.
	MultiplexedModelID = "multiplexed_model_id"
	// IsStreaming is a bool, always true for HTTP. Router and replica spans have it.
	IsStreaming = "is_streaming"
	// IsHTTPRequest is a bool. Router spans have it.
	IsHTTPRequest = "is_http_request"
	// IsGRPCRequest is a bool. Router spans have it.
	IsGRPCRequest = "is_grpc_request"
	// ReplicaID is a string: the replica's unique id, eight characters, without
	// application and deployment. Replica, batch and model load spans have it.
	ReplicaID = "replica_id"
)

// Values of RequestType.
const (
	RequestTypeHTTP      = "http"
	RequestTypeWebSocket = "websocket"
	RequestTypeGRPC      = "grpc"
)

// HTTP and RPC attributes under Ray Serve's names, in the modes "ray" and "dup". They are
// OpenTelemetry's names from before 2023. Each comment ends with the spans that have the
// attribute.
const (
	// HTTPMethod is a string: the upper-case verb, "_OTHER" or "WS". On the router span it
	// is the call method, as in Ray. Only spans of HTTP requests have it.
	HTTPMethod = "http.method"
	// HTTPStatusCode is an int: the status that the client received, or 499 if the client
	// left first. For a web socket it is the close code, on the proxy span. Proxy and
	// replica spans have it, except a replica span without a response.
	HTTPStatusCode = "http.status_code"
	// HTTPRoute is a string: the route pattern if the application reports it, else the
	// route prefix. Proxy, router and replica spans of HTTP requests have it, in every
	// mode.
	HTTPRoute = "http.route"
	// RPCSystem is a string: "grpc" on the proxy, "gRPC" on the router and the
	// replica of a gRPC request, "UNDEFINED" for a call by handle.
	RPCSystem = "rpc.system"
	// RPCMethod is a string: the full method with its leading slash on a proxy span, and the
	// call method on router and replica spans. Spans of HTTP requests lack it. In the modes
	// "stable" and "dup" it has OpenTelemetry's current meaning, see stable.go.
	RPCMethod = "rpc.method"
	// RPCService is a string: the deployment. Router and replica spans have it, except for
	// HTTP.
	RPCService = "rpc.service"
	// RPCGRPCStatusCode is a string: the code's name ("OK", "INTERNAL"), or "UNKNOWN" if
	// there is none. Proxy spans of gRPC have it.
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
	// ExceptionEscaped is a string, as in Ray: "True" if the error ended the work of the span
	// (proxy and router), and "False" if the span's component answered the error (replica).
	ExceptionEscaped = "exception.escaped"
)

// Values of ExceptionEscaped.
const (
	EscapedTrue  = "True"
	EscapedFalse = "False"
)

// The attributes of this runtime that have no counterpart in Ray Serve. They do not depend on
// the mode.
const (
	// ServeRequestID is a string, the value of RequestID. Every recording span inside a
	// request has it, including the user's spans.
	ServeRequestID = "serve.request_id"
	// ServeTaskID is a string of 48 lower-case hexadecimal digits, unique per handled
	// call. It consists of 8 random bytes and the actor id of the proxy or replica. The
	// actor id consists of 12 random bytes and the job id of 4 bytes. Every recording span
	// inside a request has it.
	ServeTaskID = "serve.task_id"
	// ServeReplicaID is a string "APP#DEPLOYMENT#UNIQUEID". Every recording span inside a
	// replica has it, and no span of a proxy.
	ServeReplicaID = "serve.replica_id"
	// ServeQueueWaitMS is a float64: how long the request waited for a slot in a replica,
	// in milliseconds, with a resolution of a microsecond. 0 if it did not wait. Router
	// spans have it.
	ServeQueueWaitMS = "serve.queue_wait_ms"
	// ServeBatchSize is an int, 1 or more: the number of requests in the batch, including
	// unsampled requests. Batch spans have it.
	ServeBatchSize = "serve.batch_size"
)

// Ray's identity. No part of the runtime emits these keys: a plugin derives them from
// ServeTaskID and ServeRequestID (pluginsdk/processors, raycontext). In Ray, the
// RayServeSpanProcessor of Anyscale's tracing guide sets them.
const (
	// RayJobID is a string of 8 lower-case hexadecimal digits.
	RayJobID = "ray.job_id"
	// RayActorID is a string of 32 digits: the actor id of the proxy or replica. It
	// ends in the job id.
	RayActorID = "ray.actor_id"
	// RayTaskID is a string of 48 digits, unique per handled call. It ends in the actor
	// id.
	RayTaskID = "ray.task_id"
	// RayRequestID is a string, the value of RequestID.
	RayRequestID = "ray.request_id"
)

// Resource attributes.
const (
	// ServiceName is a string: OTEL_SERVICE_NAME, or service.name of
	// OTEL_RESOURCE_ATTRIBUTES, or "unknown_service:EXECUTABLE".
	ServiceName = "service.name"
	// ServiceInstanceID is a string: a UUID generated at start, unless the user sets
	// it.
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
