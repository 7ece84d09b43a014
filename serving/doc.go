// Package serving runs applications behind an HTTP and a gRPC proxy, in the manner of Ray
// Serve. The proxy finds the app of a request by route prefix or by metadata. A router
// chooses a replica of the app's ingress deployment, and the replica runs the handler. Proxy,
// router and replica each make a span (package internal/spans). A handler calls the other
// deployments of the app by [Handle] and [StreamHandle]. Such a call has a router and a
// replica of its own, and their spans are below the caller's span.
//
// The life of a [Server]:
//
//  1. [New] checks settings and apps, and builds proxies, routers and replicas.
//  2. [Server.Start] listens. Replicas with a value of their own ([PerReplica]) are
//     constructed in the background, and requests wait for the first replica. Replicas that
//     fail are replaced.
//  3. A request passes the proxy, which gives it a request id, a route and a timeout. The
//     router gives it a slot of a replica, or a place in a queue. The replica runs the
//     handler. The client gets the handler's response while it is written, or a response of
//     the proxy (404, 408, 500, 503). A call by handle begins at the router. The replica runs
//     it on the caller's goroutine, or in another process ([CallConfig]).
//  4. [Server.Shutdown] makes the health check return 503, refuses new requests, and waits
//     for the running requests. Then it stops the replicas. Its context bounds the time.
//
// A handler may take the connection over ([http.Hijacker]) for a request that asks for
// another protocol, such as a web socket. There are no web sockets over HTTP/2, because
// net/http does not support them.
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
//	internal/scope       the replica and the call that a context belongs to
//	internal/inflight    the number of running requests and handlers, and their goroutines
//	internal/cause       the errors with which the runtime ends requests
//	internal/accesslog   the access log
//	internal/metrics     the metrics
//
// The package starts no processes and no plugins, sets no OpenTelemetry globals, handles no
// signals, and reads the environment only in [ConfigFromEnv].
//
// An HTTP request reaches user code through proxy.ServeHTTP, proxy.serve, proxy.dispatch,
// Deployment.Assign, Assignment.Start, Assignment.run and httpCall.Invoke.
//
// Open server.go first, then front.go, proxy.go, call.go, response.go and exchange.go of
// internal/httpproxy, and deployment.go, router.go and assignment.go of internal/router. For
// calls by handle open handle.go, and for gRPC internal/grpcproxy/proxy.go. For calls between
// processes open calls.go, carry.go and serve.go, then peer.go and accept.go of
// internal/router, internal/callclient/call.go and internal/callserver/call.go.
package serving
