// Package metrics counts the work of the serving runtime with Prometheus' client library:
// requests of the proxies, choices of the routers, calls of the replicas, batches and
// models. Names, labels and buckets of the metrics are Ray Serve's, except that the prefix is
// serve_ and not ray_serve_. docs/reference/metrics.md lists the metrics.
//
// The life of a Set:
//
//  1. A server calls New, which makes a Set.
//  2. Each part of the server gets its own metrics once. Proxy.Ingress makes them for an app
//     in a proxy, Set.Router for the router of a deployment, and Set.Replica for a replica.
//     Replica.Batcher and Replica.Models make them for a batched function and a model cache.
//  3. Each part calls methods of its metrics for each request. The series for a route, method
//     and status are made at the first request that has them.
//  4. Replica.Stopped deletes the gauges of a replica. Its counters are deleted after a
//     hundred other replicas have stopped.
//
// The number of series is bounded. The value of each label is chosen by the application, or
// is one of a few fixed values. All requests with other values share the value _OTHER.
//
// All methods are safe for concurrent use.
//
// The package does not measure time. Its callers pass durations and results. Open set.go
// first, then families.go.
package metrics
