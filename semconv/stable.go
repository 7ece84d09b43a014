package semconv

// SchemaURL is the schema of OpenTelemetry's conventions that the names of this
// file are of. The scope of the runtime's spans carries it in the modes
// "stable" and "dup"; Ray's names are of no schema.
const SchemaURL = "https://opentelemetry.io/schemas/1.43.0"

// HTTP attributes under today's names, in the modes "stable" and "dup".
// HTTPRoute is the same in every mode. The facts of the connection are those of
// the connection itself: a header that a client can write (Forwarded,
// X-Forwarded-For) is not believed. There is no url.query, which may hold
// secrets.
//
// Source: https://opentelemetry.io/docs/specs/semconv/http/http-spans/
const (
	// HTTPRequestMethod is a string: the upper-case verb or "_OTHER"; that of the
	// handshake for a web socket. Proxy and replica.
	HTTPRequestMethod = "http.request.method"
	// HTTPRequestMethodOriginal is a string: the verb as the client sent it, where
	// HTTPRequestMethod is another. Proxy.
	HTTPRequestMethodOriginal = "http.request.method_original"
	// HTTPResponseStatusCode is an int: the status that the client saw, 499 for a
	// client that left first; for a web socket that of the handshake. Proxy and
	// replica; absent on the replica where no response was started, and for web
	// sockets.
	HTTPResponseStatusCode = "http.response.status_code"
	// URLPath is a string: the whole path of the request as it was sent, with the
	// route prefix and escapes. Proxy.
	URLPath = "url.path"
	// URLScheme is a string: "https" where the connection has TLS, else "http".
	// Proxy.
	URLScheme = "url.scheme"
	// UserAgentOriginal is a string: the request's User-Agent, absent without
	// one. Proxy of HTTP.
	UserAgentOriginal = "user_agent.original"
	// NetworkProtocolVersion is a string: "1.0", "1.1" or "2". Proxy of HTTP.
	NetworkProtocolVersion = "network.protocol.version"
)

// Attributes of HTTP and of gRPC under today's names, in the modes "stable" and
// "dup".
const (
	// ServerAddress is a string: the host that the client asked for (Host or
	// :authority), without a port. Proxy.
	ServerAddress = "server.address"
	// ServerPort is an int: the port that the client asked for, absent where it
	// named none. Proxy.
	ServerPort = "server.port"
	// ClientAddress is a string: the address at the other end of the connection.
	// Proxy.
	ClientAddress = "client.address"
	// ErrorType is a string. On a proxy whose status is ERROR, and on a replica
	// whose handler failed: the type of the error, as ExceptionType, where there
	// is one; else the status or close code as text. For gRPC it is the code's
	// name on the proxy. On a router whose request got no replica, a batch and a
	// model load that failed: the type of the error. Absent elsewhere.
	ErrorType = "error.type"
)

// RPC attributes under today's names, in the modes "stable" and "dup". In these
// modes RPCMethod, which has its name in common with Ray's, is the full method
// without its leading slash ("pkg.Service/Method"; "DEPLOYMENT/METHOD" for a
// call by handle) on all three families.
//
// Source: https://opentelemetry.io/docs/specs/semconv/rpc/rpc-spans/, a release
// candidate, as of SchemaURL.
const (
	// RPCSystemName is a string: "grpc", or "serve" for a call by handle. All
	// three families, not HTTP.
	RPCSystemName = "rpc.system.name"
	// RPCResponseStatusCode is a string, the code's name ("OK", "INTERNAL");
	// "UNKNOWN" where there is none. Proxy of gRPC.
	RPCResponseStatusCode = "rpc.response.status_code"
)

// Values of RPCSystemName.
const (
	RPCSystemNameGRPC  = "grpc"
	RPCSystemNameServe = "serve"
)

// Ray Serve's own attributes in the modes "stable" and "dup": Ray's key below
// "serve.", with the same type, the same values and on the same spans. Two need
// no counterpart: RequestID, which ServeRequestID has on every span in every
// mode, and ReplicaID, which is the end of ServeReplicaID.
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
	// ServeWebSocketCloseCode is an int: the code that a web socket was closed
	// with, which Ray has as HTTPStatusCode. Proxy.
	ServeWebSocketCloseCode = "serve.websocket_close_code"
)
