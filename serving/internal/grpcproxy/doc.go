// Package grpcproxy serves gRPC calls: it finds the app by the call's metadata, has the
// app's router choose a replica, and answers itself if no handler did.
//
// The life of a call:
//
//  1. The services of the apps are not registered at the grpc.Server in front of the
//     proxy, so each call comes as a stream of an unknown service. The proxy finds the app
//     and the method by the call's metadata and name.
//  2. The proxy span starts. The router assigns a replica, and the method runs there on a
//     goroutine of its own. It reads messages from the client's stream itself, so that no
//     message is copied or sent a second time.
//  3. The proxy waits until the method returns. If a deadline passes, the client leaves or
//     stalls, or the server or the replica stops before that, the proxy takes the stream
//     from the method. Operations of the method on the stream then fail.
//  4. The error becomes a status. The span ends, and the call is counted and logged.
//
// The package also serves the health service, reflection and Ray Serve's own service. It
// knows no HTTP, and does not choose replicas. Open proxy.go first, then call.go,
// stream.go and front.go.
package grpcproxy
