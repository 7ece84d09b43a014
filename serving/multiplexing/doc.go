// Package multiplexing lets replicas serve more models than fit into their memory. Each
// replica holds a few models, loads the model that a request names, and unloads the
// least recently used one. It corresponds to Ray Serve's @serve.multiplexed;
// docs/how-to/multiplexing.md lists the differences.
//
// The life of a model in a replica:
//
//  1. A request names a model by an HTTP header, by gRPC metadata, or by a handle. The
//     router prefers replicas that hold the model.
//  2. [Models.Get] returns the model if it is loaded. Otherwise it loads the model under the
//     span model_load. All requests that ask for the model meanwhile wait for this load. If
//     the replica is full, an unused model is unloaded first. If the load fails, the next
//     request tries again. If no request waits for the load any more, it is cancelled.
//  3. The model is not unloaded until all calls that use it have ended.
//  4. The model is unloaded when another model needs its place, or when the replica stops.
//
// A call is the work of a replica for a request, a batch, or a call by handle. A goroutine
// that a handler leaves running does not keep a model loaded.
//
// The package bounds the number of models, because it does not know their sizes. Each
// replica has models of its own.
//
// Open models.go first, then cache.go.
package multiplexing
