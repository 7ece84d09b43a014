// Package batching runs requests together. A function that answers many inputs at once,
// such as a model on an accelerator, is called once per batch. It corresponds to Ray
// Serve's @serve.batch; docs/how-to/batching.md lists the differences.
//
// The life of a request in a [Batcher]:
//
//  1. [Batcher.Do] puts it into the queue of the caller's replica, which has a group of
//     requests for each multiplexed model, and waits.
//  2. A batch is formed from a group when the group can fill a batch, or when its first
//     request has waited for the wait timeout. If the permitted number of batches is
//     running, the group waits longer. A request is left out if its context has ended.
//  3. The function runs with a context and a span of the batch, batch_execute. The span is a
//     child of the current span of the first sampled request, and links to the spans of the
//     other sampled requests.
//  4. Each Do returns its part of the result. If the context of a request ends meanwhile,
//     its Do returns at once, and the batch continues for the other requests. The context of
//     the batch ends when no request waits for the result any more.
//
// A [StreamBatcher] does the same for functions that send several outputs: each request
// of the batch has its own stream, fed by [Request.Send].
//
// The package runs a goroutine for each running batch, and another that waits to form the
// next batch. An empty queue has no goroutine. A replica that stops waits for all these
// goroutines.
//
// The package does not bound the queue, because max_ongoing_requests of the deployment
// does. It retries nothing and knows no protocol.
//
// Open batcher.go first, then queue.go and run.go.
package batching
