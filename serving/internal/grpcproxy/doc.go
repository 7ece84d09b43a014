// Package grpcproxy serves gRPC calls: it finds the app by the call's metadata, has the
// app's router choose a replica, and answers itself if no handler did.
//
// The life of a call:
//
//  1. The grpc.Server in front of the proxy knows none of the apps' services, so every
//     call comes as a stream of an unknown service. The proxy finds app and method.
//  2. The proxy span starts. The router assigns a replica, and the method runs there on a
//     goroutine of its own. The method decodes the messages itself, so that the bytes are
//     neither copied nor sent a second time.
//  3. The proxy waits for the method, or for the end of the call: a deadline, a client
//     that left or stalled, a stop of the server or the replica. In the second case it
//     takes the stream from the method, whose operations on the stream then fail.
//  4. The error becomes a status. The span ends, and the call is counted and logged.
//
// The package also serves the health service, reflection and Ray Serve's own service. It
// knows no HTTP, and does not choose replicas. Open proxy.go first, then call.go,
// stream.go and front.go.
package grpcproxy
