// Package batching runs requests together: a function that answers many inputs
// at once, such as a model on an accelerator, is called once for up to a batch of
// them. It is Ray Serve's @serve.batch; where it differs, docs/batching.md says
// so.
//
// The life of a request in a [Batcher]:
//
//  1. [Batcher.Do] puts it into the queue of the replica that runs the caller,
//     with the requests for the same multiplexed model. It waits there.
//  2. A batch is formed once as many wait as it may hold, or the first of them
//     has waited for the wait time, and fewer than the permitted number of
//     batches run. A request whose context has ended is taken out.
//  3. The function runs with a context of its own, under the span
//     batch_execute: a child of the first sampled request's replica span, with
//     links to the others.
//  4. Each Do returns its part of the result. One whose context ends meanwhile
//     returns at once; the batch goes on for the others, and its context ends
//     when nobody is left.
//
// A [StreamBatcher] is the same for functions that answer by and by: each
// request of the batch has a stream of its own, which [Request.Send] feeds.
//
// The goroutines are those of the batches that run, and one that waits to form
// the next: a queue without requests has none. A replica that stops waits for
// them.
//
// What the package does not do: it bounds no queue, because the deployment's
// max_ongoing_requests does; it retries nothing; it knows no protocol.
//
// Open batcher.go first, then queue.go and run.go.
package batching
