package semconv

// SchemaURL is the schema of OpenTelemetry's conventions for the names in this file. The
// scope of the runtime's spans has this URL in the modes "stable" and "dup". Ray's names
// have no schema.
const SchemaURL = "https://opentelemetry.io/schemas/1.43.0"

// HTTP attributes under OpenTelemetry's current names, in the modes "stable" and "dup".
// HTTPRoute is the same in every mode. Each comment ends with the spans that have the
// attribute. Addresses come from the connection itself: the headers Forwarded and
// X-Forwarded-For are ignored, because any client can send them. url.query is never set,
// because it may hold secrets.
//
// Source: https://opentelemetry.io/docs/specs/semconv/http/http-spans/
const (
	// HTTPRequestMethod is a string: the upper-case verb or "_OTHER". For a web socket it
	// is the verb of the handshake. Proxy and replica spans have it.
	HTTPRequestMethod = "http.request.method"
	// HTTPRequestMethodOriginal is a string: the verb as the client sent it, if it differs
	// from HTTPRequestMethod. Proxy spans have it.
	HTTPRequestMethodOriginal = "http.request.method_original"
	// HTTPResponseStatusCode is an int: the status that the client received, or 499 if the
	// client left first. For a web socket it is the status of the handshake. Proxy and
	// replica spans have it, except a replica span without a response or of a web socket.
	HTTPResponseStatusCode = "http.response.status_code"
	// URLPath is a string: the whole path of the request as it was sent, with the route
	// prefix and escapes. Proxy spans have it.
	URLPath = "url.path"
	// URLScheme is a string: "https" if the connection has TLS, else "http". Proxy spans
	// have it.
	URLScheme = "url.scheme"
	// UserAgentOriginal is a string: the request's User-Agent header; absent without it.
	// Proxy spans of HTTP have it.
	UserAgentOriginal = "user_agent.original"
	// NetworkProtocolVersion is a string: "1.0", "1.1" or "2". Proxy spans of HTTP have
	// it.
	NetworkProtocolVersion = "network.protocol.version"
)

// Attributes of HTTP and of gRPC under OpenTelemetry's current names, in the modes "stable"
// and "dup". Each comment has the spans that have the attribute.
const (
	// ServerAddress is a string: the host in the request (Host or :authority), without the
	// port. Proxy spans have it.
	ServerAddress = "server.address"
	// ServerPort is an int: the port in the request (Host or :authority); absent if the
	// request names none. Proxy spans have it.
	ServerPort = "server.port"
	// ClientAddress is a string: the peer address of the connection. Proxy spans have it.
	ClientAddress = "client.address"
	// ErrorType is a string: the type of the error, as in ExceptionType. If there is only a
	// failed status, it is the HTTP status or close code as text. On a proxy span of gRPC it
	// is the name of the code. Proxy spans with the status ERROR have it, router spans of
	// requests that got no replica, and failed replica, batch and model load spans.
	ErrorType = "error.type"
)

// RPC attributes under OpenTelemetry's current names, in the modes "stable" and "dup". Ray
// uses the name of RPCMethod, too. In these modes its value on proxy, router and replica spans
// is the full method without its leading slash: "pkg.Service/Method", or "DEPLOYMENT/METHOD"
// for a call by handle.
//
// Source: https://opentelemetry.io/docs/specs/semconv/rpc/rpc-spans/, a release
// candidate in the version of SchemaURL.
const (
	// RPCSystemName is a string: "grpc", or "serve" for a call by handle. Proxy, router
	// and replica spans have it, except for HTTP.
	RPCSystemName = "rpc.system.name"
	// RPCResponseStatusCode is a string: the code's name ("OK", "INTERNAL"), or "UNKNOWN"
	// if there is none. Proxy spans of gRPC have it.
	RPCResponseStatusCode = "rpc.response.status_code"
)

// Values of RPCSystemName.
const (
	RPCSystemNameGRPC  = "grpc"
	RPCSystemNameServe = "serve"
)

// Ray Serve's own attributes in the modes "stable" and "dup": Ray's key below "serve.",
// with the same type and values, on the same spans. RequestID and ReplicaID have no
// counterpart here: ServeRequestID holds the request id in every mode, and
// ServeReplicaID ends in the replica id.
const (
	// ServeDeployment is a string, with the value of Deployment.
	ServeDeployment = "serve.deployment"
	// ServeApp is a string, with the value of App.
	ServeApp = "serve.app"
	// ServeRequestType is a string, with the value of RequestType.
	ServeRequestType = "serve.request_type"
	// ServeRequestMethod is a string, with the value of RequestMethod.
	ServeRequestMethod = "serve.request_method"
	// ServeRequestRoutePath is a string, with the value of RequestRoutePath.
	ServeRequestRoutePath = "serve.request_route_path"
	// ServeCallMethod is a string, with the value of CallMethod.
	ServeCallMethod = "serve.call_method"
	// ServeRoute is a string, with the value of Route.
	ServeRoute = "serve.route"
	// ServeMultiplexedModelID is a string, with the value of MultiplexedModelID.
	ServeMultiplexedModelID = "serve.multiplexed_model_id"
	// ServeIsStreaming is a bool, with the value of IsStreaming.
	ServeIsStreaming = "serve.is_streaming"
	// ServeIsHTTPRequest is a bool, with the value of IsHTTPRequest.
	ServeIsHTTPRequest = "serve.is_http_request"
	// ServeIsGRPCRequest is a bool, with the value of IsGRPCRequest.
	ServeIsGRPCRequest = "serve.is_grpc_request"
	// ServeWebSocketCloseCode is an int: the close code of a web socket. Ray uses
	// HTTPStatusCode for it. Proxy spans have it.
	ServeWebSocketCloseCode = "serve.websocket_close_code"
)
