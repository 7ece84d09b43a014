// Package multiplexing has replicas serve more models than fit into their
// memory: each replica holds a few, loads the one that a request asks for, and
// unloads the one that was used least recently. It is Ray Serve's
// @serve.multiplexed; where it differs, docs/multiplexing.md says so.
//
// The life of a model in a replica:
//
//  1. A request with a model id comes: by header, metadata or handle. The router
//     prefers replicas that hold the model.
//  2. [Models.Get] finds it, or loads it: once for all requests that ask for it
//     meanwhile, under the span model_load. Where the replica is full, a model
//     that nobody uses is unloaded before. A load that fails is not remembered;
//     one that nobody waits for any more is cancelled.
//  3. The request uses the model until its call ends. So long it is not unloaded.
//  4. It is unloaded when room is needed, or when the replica has stopped.
//
// A model is held for a call, which is what a replica runs for a request, a
// batch, or a call by handle; what a handler leaves running behind its back does
// not count.
//
// What the package does not do: it knows no sizes of models, only how many there
// are; it shares nothing between replicas.
//
// Open models.go first, then cache.go.
package multiplexing
