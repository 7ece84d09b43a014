package metrics

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Replica holds the metrics of a replica.
type Replica struct {
	set                 *Set
	app, deployment, id string
	working             atomic.Int64            // number of calls in user code
	processing          prometheus.Gauge        // the same number as a metric
	calls               *bounded[string, calls] // the key is the route

	mu        sync.Mutex
	stopped   bool             // Stopped was called
	healthy   prometheus.Gauge // nil until the replica accepts calls
	functions map[string]bool  // names of the batched functions that have series
	models    []*Models        // one for each cache of models
	named     map[string]bool  // ids of the models that have a series
}

// calls holds the series of the calls for a route.
type calls struct {
	done, failed prometheus.Counter // calls without and with an error
	latency      *latency           // durations of all calls
}

// Replica returns the metrics of the replica with the unique id. It must be called once for
// each replica.
func (s *Set) Replica(app, deployment, id string) *Replica {
	return &Replica{
		set: s, app: app, deployment: deployment, id: id,
		processing: s.families.replicaProcessing.WithLabelValues(app, deployment, id),
		calls: newBounded(maxRoutes, otherRoute, func(route string) calls {
			return calls{
				done:    s.families.replicaRequests.WithLabelValues(app, deployment, id, route),
				failed:  s.families.replicaErrors.WithLabelValues(app, deployment, id, route),
				latency: s.families.replicaLatency.with(app, deployment, id, route),
			}
		}),
		functions: map[string]bool{},
		named:     map[string]bool{},
	}
}

// labels returns the label values of a series of the replica. more has the values of further
// labels.
func (r *Replica) labels(more ...string) []string {
	return append([]string{r.app, r.deployment, r.id}, more...)
}

// gaugeLocked returns the replica's gauge of a vector. If the replica has stopped, it returns
// a gauge that no scrape shows.
func (r *Replica) gaugeLocked(v *prometheus.GaugeVec, more ...string) prometheus.Gauge {
	if r.stopped {
		return prometheus.NewGauge(prometheus.GaugeOpts{})
	}
	return v.WithLabelValues(r.labels(more...)...)
}

// forget deletes all series of the replica from the vectors.
func (r *Replica) forget(vectors []replicaVector) {
	for _, v := range vectors {
		if v.more == "" {
			v.DeleteLabelValues(r.labels()...)
			continue
		}
		for _, value := range r.valuesOf(v.more) {
			v.DeleteLabelValues(r.labels(value)...)
		}
	}
}

// valuesOf returns the values that the replica's series have for a label.
func (r *Replica) valuesOf(label string) []string {
	if label == labelRoute {
		return r.calls.keys()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if label == labelFunction {
		return slices.Collect(maps.Keys(r.functions))
	}
	return slices.Collect(maps.Keys(r.named))
}

// Began counts a call that enters user code. Done must follow.
func (r *Replica) Began() {
	r.working.Add(1)
	r.processing.Inc()
}

// Done counts a call that has left user code. failed reports that it returned an error,
// panicked or was cancelled. span is the context of the replica span, or zero if that span
// does not record.
func (r *Replica) Done(route string, latency time.Duration, failed bool, span trace.SpanContext) {
	r.working.Add(-1)
	r.processing.Dec()
	series := r.calls.get(route)
	series.latency.observe(latency, span)
	if failed {
		series.failed.Inc()
	} else {
		series.done.Inc()
	}
}

// Processing returns the number of calls in user code.
func (r *Replica) Processing() int {
	return int(r.working.Load())
}

// observe records a duration in the replica's histogram of a vector.
func (r *Replica) observe(v *prometheus.HistogramVec, latency time.Duration) {
	v.WithLabelValues(r.labels()...).Observe(milliseconds(latency))
}

// Constructed records the duration of the replica's constructor.
func (r *Replica) Constructed(latency time.Duration) {
	r.observe(r.set.families.replicaInitialized, latency)
}

// Started records that the replica accepts calls. Call it once.
func (r *Replica) Started() {
	r.set.families.replicaStarts.WithLabelValues(r.labels()...).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healthy = r.gaugeLocked(r.set.families.replicaHealthy)
	r.healthy.Set(1)
}

// Checked records the duration of a health check of user code, and whether it passed.
func (r *Replica) Checked(latency time.Duration, healthy bool) {
	r.observe(r.set.families.replicaChecked, latency)
	value, failures := 1.0, r.set.families.replicaUnhealthy.WithLabelValues(r.labels()...)
	if !healthy {
		value = 0
		failures.Inc()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.healthy != nil {
		r.healthy.Set(value)
	}
}

// Reconfigured records the time that user code took to accept a new configuration.
func (r *Replica) Reconfigured(latency time.Duration) {
	r.observe(r.set.families.replicaReconfigured, latency)
}

// Stopped records the duration of the replica's stop. It deletes the replica's gauges.
// The counters stay until a hundred other replicas have stopped. Later calls do
// nothing.
func (r *Replica) Stopped(latency time.Duration) {
	r.mu.Lock()
	before := r.stopped
	r.stopped = true
	r.mu.Unlock()
	if before {
		return
	}
	r.observe(r.set.families.replicaShutDown, latency)
	r.set.retire(r)
}
