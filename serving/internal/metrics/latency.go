package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// latencies is a vector of histograms with latencyBuckets. The histograms have exemplars: a
// bucket may have the trace id of a request that it counts.
type latencies struct{ *prometheus.HistogramVec }

func (v *latencies) with(labels ...string) *latency {
	return &latency{series: v.WithLabelValues(labels...), made: time.Now(), next: make([]atomic.Int64, len(latencyBuckets)+1)}
}

// latency is a histogram of a vector of type latencies.
type latency struct {
	series prometheus.Observer
	made   time.Time
	next   []atomic.Int64 // for each bucket, the earliest time of its next exemplar, in nanoseconds since made
}

// exemplarEvery is the minimum time between two exemplars of a bucket. Each exemplar
// allocates memory, and a scrape reads only the last exemplar.
const exemplarEvery = time.Second

// observe records the duration d of a request. If its span is sampled, the ids of the span
// may become the exemplar of a bucket.
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

// takesExemplar reports whether the bucket of a duration of ms milliseconds is to get a new
// exemplar. If so, the caller must set it.
func (l *latency) takesExemplar(ms float64) bool {
	bucket, _ := slices.BinarySearch(latencyBuckets, ms)
	next, now := l.next[bucket].Load(), int64(time.Since(l.made))
	return now >= next && l.next[bucket].CompareAndSwap(next, now+int64(exemplarEvery))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
