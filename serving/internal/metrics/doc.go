// Package metrics counts what the serving runtime does, for Prometheus: requests
// of the proxies, choices of the routers, calls of the replicas, batches and
// models. Names, labels and buckets are those of Ray Serve, with serve_ in the
// place of ray_serve_, so that dashboards made for it need a change of prefix
// only; docs/operations.md lists them.
//
// The life of a Set:
//
//  1. New makes it, one for each server.
//  2. Each part of the runtime asks once for its own: Proxy.Ingress for an app,
//     Router for a deployment, Replica, and of that Batcher and Models.
//  3. Each request calls one method of each part that it passes. Its series are
//     found in a map that is never written to: no lock, no allocation. Gauges are
//     read when somebody asks: queues and calls are counted where they are.
//  4. Replica.Stopped has the replica's gauges end. Its counts stay until a
//     hundred others have stopped after it.
//
// The number of series is bounded whatever clients and handlers do: a label has a
// value that the application chose, or one of a few. What would be too many is
// counted under _OTHER.
//
// Every method of every type may be called on nil, and then does nothing: a part
// that is used without a server needs no case of its own. All are safe for
// concurrent use.
//
// The package measures nothing: durations and outcomes are told to it. Open
// families.go first, then set.go, table.go and series.go.
package metrics
