package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Batcher holds the metrics of a batched function in a replica.
type Batcher struct {
	queued            prometheus.Gauge
	batches           prometheus.Counter
	size, utilization prometheus.Observer
	wait, run         *latency
}

// Batcher returns the metrics of the function with the name.
func (r *Replica) Batcher(name string) *Batcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.functions[name] = true
	labels := r.labels(name)
	return &Batcher{
		queued:      r.gaugeLocked(r.set.families.batchQueued, name),
		batches:     r.set.families.batches.WithLabelValues(labels...),
		size:        r.set.families.batchSize.WithLabelValues(labels...),
		utilization: r.set.families.batchUtilization.WithLabelValues(labels...),
		wait:        r.set.families.batchWait.with(labels...),
		run:         r.set.families.batchRun.with(labels...),
	}
}

// Queued adds n to the number of items that wait for a batch. n may be negative.
func (b *Batcher) Queued(n int) {
	b.queued.Add(float64(n))
}

// Batch describes a batch that was run.
type Batch struct {
	// Size is the size of the batch, and Limit is the maximum size. The unit is items, or the
	// unit of the size function if there is one.
	Size, Limit int
	// Wait is the time for which the first item waited, and Run the duration of the function.
	Wait, Run time.Duration
	// Span is the batch span's context, or zero if it does not record.
	Span trace.SpanContext
}

// Done counts a batch that was run.
func (b *Batcher) Done(batch Batch) {
	b.batches.Inc()
	b.size.Observe(float64(batch.Size))
	b.utilization.Observe(100 * float64(batch.Size) / float64(max(batch.Limit, 1)))
	b.wait.observe(batch.Wait, batch.Span)
	b.run.observe(batch.Run, batch.Span)
}
