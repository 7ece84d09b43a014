// Package serving runs applications behind an HTTP and a gRPC proxy, in the manner
// of Ray Serve: the proxy finds the app by route prefix or by metadata, a router
// chooses one of its deployment's replicas, and the replica runs the handler.
// Each of the three has its span, made by package internal/spans. A handler calls
// the app's other deployments by [Handle] and [StreamHandle]: a call has a router
// and a replica again, with their spans below the caller's.
//
// The life of a [Server]:
//
//  1. [New] checks settings and apps and builds proxies, routers and replicas.
//  2. [Server.Start] listens. From then on each request goes
//     proxy (request id, route, timeout, proxy span) →
//     router (a slot, or a place in the queue; router span) →
//     replica (the handler, replica span) → the handler's response, as it is
//     written, or the proxy's own (404, 408, 500, 503). A call by handle goes
//     router → replica, on the goroutine of its caller, or in another process
//     ([CallConfig]).
//     Replicas with a value of their own ([PerReplica]) are constructed in the
//     background meanwhile, and requests wait for the first. Replicas that fail
//     are replaced.
//  3. [Server.Shutdown] drains: health turns 503, new requests are refused,
//     requests in flight finish, and replicas stop, within the bound of its context.
//
// A handler may take the connection over ([http.Hijacker]) for a request that
// asks for another protocol, such as a web socket. HTTP/2 has no web sockets here:
// net/http does not offer them.
//
// The package has the public types, and builds a server from these packages:
//
//	internal/httpproxy   HTTP requests, responses and web sockets
//	internal/grpcproxy   gRPC calls, health and reflection
//	internal/router      deployments: the router, the replicas and their life
//	internal/callserver  calls by handle from other processes
//	internal/callclient  calls by handle to other processes
//	internal/callwire    the form of errors, and TLS, for the two above
//	internal/discovery   the processes that run a deployment
//	internal/scope       access to replica and call for code that runs inside them
//	internal/inflight    the count of requests and handlers, and their goroutines
//	internal/cause       the errors with which the runtime ends requests
//	internal/accesslog   the access log
//	internal/metrics     the metrics
//
// The package starts no processes and no plugins, sets no
// OpenTelemetry globals, handles no signals and reads the environment only in
// [ConfigFromEnv].
//
// A request by HTTP reaches user code by proxy.ServeHTTP, proxy.serve, proxy.dispatch,
// Deployment.Assign, Assignment.Start, Assignment.run and httpCall.Invoke.
//
// Open server.go first, then front.go, proxy.go, call.go, response.go and exchange.go of
// internal/httpproxy, and deployment.go, router.go and assignment.go of internal/router. For
// calls between deployments open handle.go, for gRPC internal/grpcproxy/proxy.go. For calls
// between processes open calls.go, carry.go, peer.go and accept.go of internal/router, then
// internal/callserver/call.go and internal/callclient/call.go.
package serving
