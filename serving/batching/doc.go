// Package batching runs requests together. A function that answers many inputs at once,
// such as a model on an accelerator, is called once per batch. It corresponds to Ray
// Serve's @serve.batch; docs/how-to/batching.md lists the differences.
//
// The life of a request in a [Batcher]:
//
//  1. [Batcher.Do] appends it to the queue of the caller's replica, behind the
//     requests for the same multiplexed model, and waits.
//  2. A batch is formed when the queue can fill one, or when the first request has
//     waited for the wait timeout. Fewer than the permitted number of batches must be
//     running. A request is removed if its context has ended.
//  3. The function runs with its own context, under the span batch_execute. This span is
//     a child of the first sampled request's replica span, and links to the spans of the
//     other sampled requests.
//  4. Each Do returns its part of the result. If the context of a request ends
//     meanwhile, its Do returns at once and the batch continues. The context of the
//     batch ends when no request waits any more.
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
