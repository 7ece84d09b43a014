// Package serving runs applications behind an HTTP and a gRPC proxy, in the manner
// of Ray Serve: the proxy finds the app by route prefix or by metadata, a router
// chooses one of its deployment's replicas, and the replica runs the handler.
// Each of the three has its span, made by package internal/spans. A handler calls
// the app's other deployments by [Handle] and [StreamHandle], which is a router
// and a replica again, with their spans below the caller's.
//
// The life of a [Server]:
//
//  1. [New] checks settings and apps and builds routes, routers and replicas.
//  2. [Server.Start] listens. From then on each request goes
//     proxy (request id, route, timeout, proxy span) →
//     router (a slot, or a place in the queue; router span) →
//     replica (the handler, replica span) → the handler's response, as it is
//     written, or the proxy's own (404, 408, 500, 503). A call by handle goes
//     router → replica, on the goroutine of its caller.
//     Replicas with a value of their own ([PerReplica]) are constructed in the
//     background meanwhile, and requests wait for the first. From then on they
//     are looked after: see replicaset.go and replicalife.go.
//  3. [Server.Shutdown] drains: health turns 503, new requests are refused,
//     those in flight finish, replicas stop, within the bound of its context.
//
// A request has one response, and one writer that claims it: the handler by its
// first write, or the proxy when the time is over or the handler has failed.
// A response that fails after it began is cut off, never completed. A
// read or write that the client holds up fails with [ErrClientStalled], and the
// handler may still answer: see internal/stall and grpcstream.go.
//
// A handler may take the connection over ([http.Hijacker]) for a request that
// asks for another protocol. A web socket is watched: its context ends when a
// close frame or the connection's end comes, though the handler may not read;
// its span lasts until the socket is closed, and has the close code. See
// upgrade.go and package internal/socket.
//
// What the package does not do: it starts no processes and no plugins, sets no
// OpenTelemetry globals, handles no signals and reads the environment only in
// [ConfigFromEnv]. HTTP/2 has no web sockets here: net/http does not offer
// them.
//
// A request reaches user code by proxy.dispatch, workers.start, exchange.work,
// assignment.run, replica.run and httpCall.invoke.
//
// Open proxy.go first, then exchange.go, target.go, router.go, workers.go,
// replica.go and response.go;
// handle.go for calls between deployments, grpc.go and grpcstream.go for gRPC.
package serving
