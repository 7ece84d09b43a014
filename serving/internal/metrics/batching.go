package metrics

import (
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Batcher is the metrics of one batched function in one replica. Nil counts
// nothing.
type Batcher struct {
	queued      atomic.Int64
	batches     *tally
	size        *timing // in items, or what the size function says
	utilization *timing // in percent
	wait, run   *timing
}

// Batcher gives the metrics of the function with the name: the same ones to all
// who ask.
func (r *Replica) Batcher(name string) *Batcher {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.batchers[name]
	if !known {
		b = &Batcher{
			batches:     r.counter(batches, name),
			size:        r.histogram(batchSize, name),
			utilization: r.histogram(batchUtilization, name),
			wait:        r.histogram(batchWait, name),
			run:         r.histogram(batchRun, name),
		}
		r.batchers[name] = b
	}
	return b
}

// Queued says that n more items wait for a batch, or fewer where n is negative.
func (b *Batcher) Queued(n int) {
	if b != nil {
		b.queued.Add(int64(n))
	}
}

// Batch is one batch that was run.
type Batch struct {
	// Size is its size, and Limit the largest size there may be, in the unit of
	// the size function.
	Size, Limit int
	// Wait is how long its first item waited, Run how long the function took.
	Wait, Run time.Duration
	// Span is the batch span's context; zero where it does not record.
	Span trace.SpanContext
}

// Done counts a batch that was run.
func (b *Batcher) Done(batch Batch) {
	if b == nil {
		return
	}
	b.batches.inc()
	b.size.observeValue(float64(batch.Size))
	b.utilization.observeValue(100 * float64(batch.Size) / float64(max(batch.Limit, 1)))
	b.wait.observe(batch.Wait, batch.Span)
	b.run.observe(batch.Run, batch.Span)
}
