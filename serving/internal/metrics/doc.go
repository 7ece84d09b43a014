// Package metrics counts the work of the serving runtime, in vectors of Prometheus'
// client library: requests of the proxies, choices of the routers, calls of the
// replicas, batches and models. Names, labels and buckets are Ray Serve's, with serve_
// instead of ray_serve_, so that dashboards for Ray Serve need only a change of prefix.
// docs/reference/metrics.md lists them.
//
// The life of a Set:
//
//  1. New makes a Set for each server.
//  2. Each part of the runtime gets its own metrics once: Proxy.Ingress for an app,
//     Router for a deployment, Replica, and from the replica Batcher and Models.
//  3. Each request calls a method of each part that it passes. The series of a route,
//     method and status are resolved at the first request.
//  4. Replica.Stopped deletes the replica's gauges. Its counters are deleted after a
//     hundred other replicas have stopped.
//
// The number of series is bounded: each label has a value chosen by the application, or
// one of a few fixed values. Requests with other values are counted under _OTHER.
//
// All methods are safe for concurrent use.
//
// The package measures nothing itself: its callers pass durations and outcomes. Open
// set.go first, then families.go.
package metrics
