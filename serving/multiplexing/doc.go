// Package multiplexing lets replicas serve more models than fit into their memory. Each
// replica holds a few models, loads the model that a request names, and unloads the
// least recently used one. It corresponds to Ray Serve's @serve.multiplexed;
// docs/how-to/multiplexing.md lists the differences.
//
// The life of a model in a replica:
//
//  1. A request with a model id arrives, by header, metadata or handle. The router
//     prefers replicas that hold the model.
//  2. [Models.Get] returns the model if it is loaded. Otherwise it loads the model
//     once for all requests that ask for it meanwhile, under the span model_load. If
//     the replica is full, an unused model is unloaded first. A failed load is not
//     remembered. A load is cancelled when no request waits for it any more.
//  3. The request uses the model until its call ends. The model is not unloaded
//     before.
//  4. The model is unloaded when another model needs its place, or when the replica has
//     stopped.
//
// A model is held for a call. A call is the work of a replica for a request, a batch,
// or a call by handle. Goroutines that a handler leaves running do not count.
//
// The package does not know the sizes of models, only their number, and shares nothing
// between replicas.
//
// Open models.go first, then cache.go.
package multiplexing
