package semconv

// SchemaURL is the schema of OpenTelemetry's conventions for the names in this file. The
// scope of the runtime's spans has this URL in the modes "stable" and "dup". Ray's names
// have no schema.
const SchemaURL = "https://opentelemetry.io/schemas/1.43.0"

// HTTP attributes under today's names, in the modes "stable" and "dup". HTTPRoute is the
// same in every mode. Each comment ends with the spans that have the attribute. Addresses
// come from the connection itself: the headers Forwarded and X-Forwarded-For are ignored,
// because any client can send them. url.query is never set, because it may hold secrets.
//
// Source: https://opentelemetry.io/docs/specs/semconv/http/http-spans/
const (
	// HTTPRequestMethod is a string: the upper-case verb or "_OTHER". For a web socket
	// it is the verb of the handshake. Proxy and replica.
	HTTPRequestMethod = "http.request.method"
	// HTTPRequestMethodOriginal is a string: the verb as the client sent it, if it
	// differs from HTTPRequestMethod. Proxy.
	HTTPRequestMethodOriginal = "http.request.method_original"
	// HTTPResponseStatusCode is an int: the status that the client received, or 499 if
	// the client left first. For a web socket it is the status of the handshake. Proxy
	// and replica. Absent on a replica that started no response, and on the replica of
	// a web socket.
	HTTPResponseStatusCode = "http.response.status_code"
	// URLPath is a string: the whole path of the request as it was sent, with the route
	// prefix and escapes. Proxy.
	URLPath = "url.path"
	// URLScheme is a string: "https" if the connection has TLS, else "http". Proxy.
	URLScheme = "url.scheme"
	// UserAgentOriginal is a string: the request's User-Agent header; absent without
	// it. Proxy of HTTP.
	UserAgentOriginal = "user_agent.original"
	// NetworkProtocolVersion is a string: "1.0", "1.1" or "2". Proxy of HTTP.
	NetworkProtocolVersion = "network.protocol.version"
)

// Attributes of HTTP and of gRPC under today's names, in the modes "stable" and
// "dup".
const (
	// ServerAddress is a string: the host in the request (Host or :authority), without
	// the port. Proxy.
	ServerAddress = "server.address"
	// ServerPort is an int: the port in the request (Host or :authority); absent if the
	// request names none. Proxy.
	ServerPort = "server.port"
	// ClientAddress is a string: the peer address of the connection. Proxy.
	ClientAddress = "client.address"
	// ErrorType is a string: the type of the error, as in ExceptionType. On a proxy
	// span with the status ERROR, and on failed replica, batch and model load spans. On
	// a router span if the request got no replica. If there is no error, it is the HTTP
	// status or close code as text. For gRPC it is the code's name on the proxy.
	ErrorType = "error.type"
)

// RPC attributes under today's names, in the modes "stable" and "dup". In these modes
// RPCMethod, a name that Ray uses too, is the full method without its leading slash on
// all three families: "pkg.Service/Method", or "DEPLOYMENT/METHOD" for a call by
// handle.
//
// Source: https://opentelemetry.io/docs/specs/semconv/rpc/rpc-spans/, a release
// candidate in the version of SchemaURL.
const (
	// RPCSystemName is a string: "grpc", or "serve" for a call by handle. All
	// three families, not HTTP.
	RPCSystemName = "rpc.system.name"
	// RPCResponseStatusCode is a string: the code's name ("OK", "INTERNAL"), or
	// "UNKNOWN" if there is none. Proxy of gRPC.
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
	// ServeDeployment is a string, as Deployment.
	ServeDeployment = "serve.deployment"
	// ServeApp is a string, as App.
	ServeApp = "serve.app"
	// ServeRequestType is a string, as RequestType.
	ServeRequestType = "serve.request_type"
	// ServeRequestMethod is a string, as RequestMethod.
	ServeRequestMethod = "serve.request_method"
	// ServeRequestRoutePath is a string, as RequestRoutePath.
	ServeRequestRoutePath = "serve.request_route_path"
	// ServeCallMethod is a string, as CallMethod.
	ServeCallMethod = "serve.call_method"
	// ServeRoute is a string, as Route.
	ServeRoute = "serve.route"
	// ServeMultiplexedModelID is a string, as MultiplexedModelID.
	ServeMultiplexedModelID = "serve.multiplexed_model_id"
	// ServeIsStreaming is a bool, as IsStreaming.
	ServeIsStreaming = "serve.is_streaming"
	// ServeIsHTTPRequest is a bool, as IsHTTPRequest.
	ServeIsHTTPRequest = "serve.is_http_request"
	// ServeIsGRPCRequest is a bool, as IsGRPCRequest.
	ServeIsGRPCRequest = "serve.is_grpc_request"
	// ServeWebSocketCloseCode is an int: the close code of a web socket. Ray uses
	// HTTPStatusCode for it. Proxy.
	ServeWebSocketCloseCode = "serve.websocket_close_code"
)
