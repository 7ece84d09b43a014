// Package metrics counts what the serving runtime does, in vectors of Prometheus'
// client library: requests of the proxies, choices of the routers, calls of the
// replicas, batches and models. Names, labels and buckets are Ray Serve's, with
// serve_ in place of ray_serve_, so that dashboards made for Ray Serve need a
// change of prefix only; docs/reference/metrics.md lists them.
//
// The life of a Set:
//
//  1. New makes it, one for each server.
//  2. Each part of the runtime asks once for its own: Proxy.Ingress for an app,
//     Router for a deployment, Replica, and of that Batcher and Models.
//  3. Each request calls one method of each part that it passes. The series of a
//     route, method and status are resolved at the first request.
//  4. Replica.Stopped deletes the replica's gauges. Its counts are deleted when a
//     hundred other replicas have stopped after it.
//
// The number of series is bounded whatever clients and handlers do: a label has a
// value that the application chose, or one of a few. Requests with more values
// are counted under _OTHER.
//
// Methods of Replica, Batcher and Models may be called on nil, and then do
// nothing: code in a replica may run without a server. All methods are safe for
// concurrent use.
//
// The package measures nothing: durations and outcomes are told to it. Open
// set.go first, then families.go.
package metrics
