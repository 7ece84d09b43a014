package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Replica is the metrics of one replica. Nil counts nothing.
type Replica struct {
	set                 *Set
	app, deployment, id string
	working             atomic.Int64 // calls
	processing          prometheus.Gauge
	calls               *bounded[string, calls] // by route

	mu      sync.Mutex
	stopped bool
	healthy prometheus.Gauge // nil until it takes calls
	models  []*Models
	named   map[string]bool // models that are shown
}

// calls is the series of one route.
type calls struct {
	done, failed prometheus.Counter
	latency      *latency
}

// Replica returns the metrics of the replica with the unique id. Ask once for each.
func (s *Set) Replica(app, deployment, id string) *Replica {
	return &Replica{
		set: s, app: app, deployment: deployment, id: id,
		processing: s.replicaProcessing.WithLabelValues(app, deployment, id),
		calls: newBounded(mostRoutes, otherRoute, func(route string) calls {
			return calls{
				done:    s.replicaRequests.WithLabelValues(app, deployment, id, route),
				failed:  s.replicaErrors.WithLabelValues(app, deployment, id, route),
				latency: s.replicaLatency.with(app, deployment, id, route),
			}
		}),
		named: map[string]bool{},
	}
}

func (r *Replica) labels(more ...string) []string {
	return append([]string{r.app, r.deployment, r.id}, more...)
}

// gaugeLocked returns a series of the replica, or a gauge that is shown nowhere if
// the replica has stopped.
func (r *Replica) gaugeLocked(v *prometheus.GaugeVec, more ...string) prometheus.Gauge {
	if r.stopped {
		return prometheus.NewGauge(prometheus.GaugeOpts{})
	}
	return v.WithLabelValues(r.labels(more...)...)
}

func (r *Replica) forget(all []deleter) {
	for _, v := range all {
		v.DeletePartialMatch(prometheus.Labels{labelApp: r.app, labelDeployment: r.deployment, labelReplica: r.id})
	}
}

// Began counts a call that user code is about to run. Done must follow.
func (r *Replica) Began() {
	if r != nil {
		r.working.Add(1)
		r.processing.Inc()
	}
}

// Done counts a call from which user code has returned. failed says that it returned
// by an error, a panic or a cancellation. span is the replica span's context; zero if
// it does not record.
func (r *Replica) Done(route string, latency time.Duration, failed bool, span trace.SpanContext) {
	if r == nil {
		return
	}
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

// Processing returns how many calls user code is working on.
func (r *Replica) Processing() int {
	if r == nil {
		return 0
	}
	return int(r.working.Load())
}

func (r *Replica) observe(v *prometheus.HistogramVec, latency time.Duration) {
	v.WithLabelValues(r.labels()...).Observe(milliseconds(latency))
}

// Constructed counts the replica's constructor, which took latency.
func (r *Replica) Constructed(latency time.Duration) {
	if r != nil {
		r.observe(r.set.replicaInitialized, latency)
	}
}

// Started counts that the replica takes calls from now on. Call it once.
func (r *Replica) Started() {
	if r == nil {
		return
	}
	r.set.replicaStarts.WithLabelValues(r.labels()...).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healthy = r.gaugeLocked(r.set.replicaHealthy)
	r.healthy.Set(1)
}

// Checked counts a health check of user code, which took latency. healthy says
// that it passed.
func (r *Replica) Checked(latency time.Duration, healthy bool) {
	if r == nil {
		return
	}
	r.observe(r.set.replicaChecked, latency)
	value, failures := 1.0, r.set.replicaUnhealthy.WithLabelValues(r.labels()...)
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

// Reconfigured counts that user code has taken, or refused, a new configuration,
// which took latency.
func (r *Replica) Reconfigured(latency time.Duration) {
	if r != nil {
		r.observe(r.set.replicaReconfigured, latency)
	}
}

// Stopped counts the end of the replica, and how long its stop took. Its gauges
// end; its counts stay until a hundred other replicas have stopped. Later calls do
// nothing.
func (r *Replica) Stopped(latency time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	r.stopped = true
	r.observe(r.set.replicaShutDown, latency)
	r.set.retire(r)
}
