package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// latencies is a vector of histograms with [latencyBuckets] and exemplars.
type latencies struct{ *prometheus.HistogramVec }

func (v *latencies) with(labels ...string) *latency {
	return &latency{series: v.WithLabelValues(labels...), made: time.Now(), next: make([]atomic.Int64, len(latencyBuckets)+1)}
}

type latency struct {
	series prometheus.Observer
	made   time.Time
	next   []atomic.Int64 // for each bucket, the time of its next exemplar, counted from made
}

// exemplarEvery is the minimum time between two exemplars of a bucket. A scrape reads
// only the last one, and an exemplar allocates memory.
const exemplarEvery = time.Second

// observe records d. If span is sampled, it may become the exemplar of d's bucket.
func (l *latency) observe(d time.Duration, span trace.SpanContext) {
	ms := milliseconds(d)
	if !span.IsSampled() || !l.takesExemplar(ms) {
		l.series.Observe(ms)
		return
	}
	l.series.(prometheus.ExemplarObserver).ObserveWithExemplar(ms, prometheus.Labels{
		"trace_id": span.TraceID().String(), "span_id": span.SpanID().String(),
	})
}

// takesExemplar reports whether the caller must set an exemplar for the bucket of ms.
func (l *latency) takesExemplar(ms float64) bool {
	bucket, _ := slices.BinarySearch(latencyBuckets, ms)
	next, now := l.next[bucket].Load(), int64(time.Since(l.made))
	return now >= next && l.next[bucket].CompareAndSwap(next, now+int64(exemplarEvery))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
