package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// maxModels is the largest number of models of a replica that have a series of their own.
const maxModels = 100

// Models holds the metrics of a cache of models in a replica.
type Models struct {
	replica              *Replica
	gets, loads, unloads prometheus.Counter
	load                 *latency
	unload               prometheus.Observer
	loaded               prometheus.Gauge
	ids                  []string // ids of the loaded models, as label values; the replica's mu guards it
}

// Models returns the metrics of a cache of models. It must be called once for each cache of
// the replica. The gauges count the models of all caches of the replica.
func (r *Replica) Models() *Models {
	r.mu.Lock()
	defer r.mu.Unlock()
	labels := r.labels()
	m := &Models{
		replica: r,
		gets:    r.set.families.modelGets.WithLabelValues(labels...),
		loads:   r.set.families.modelLoads.WithLabelValues(labels...),
		unloads: r.set.families.modelUnloads.WithLabelValues(labels...),
		load:    r.set.families.modelLoadLatency.with(labels...),
		unload:  r.set.families.modelUnloadLatency.WithLabelValues(labels...),
		loaded:  r.gaugeLocked(r.set.families.modelsLoaded),
	}
	r.models = append(r.models, m)
	return m
}

// Asked counts a request for a model, even if the model is already loaded.
func (m *Models) Asked() {
	m.gets.Inc()
}

// Loaded counts a load that has ended. latency is its duration, which is recorded only if the
// load has not failed. span is the context of the load's span, or zero if it does not record.
func (m *Models) Loaded(latency time.Duration, failed bool, span trace.SpanContext) {
	m.loads.Inc()
	if !failed {
		m.load.observe(latency, span)
	}
}

// Unloaded counts an unloaded model with the duration of the unload.
func (m *Models) Unloaded(latency time.Duration) {
	m.unloads.Inc()
	m.unload.Observe(milliseconds(latency))
}

// Hold records the ids of all models that the cache holds now.
func (m *Models) Hold(ids []string) {
	r := m.replica
	r.mu.Lock()
	defer r.mu.Unlock()
	m.ids = make([]string, len(ids))
	for i, id := range ids {
		m.ids[i] = fit(id)
	}
	held := map[string]bool{}
	for _, cache := range r.models {
		for _, id := range cache.ids {
			held[id] = true
		}
	}
	m.loaded.Set(float64(len(held)))
	r.nameLocked(held)
}

// nameLocked makes a series for each id in held, at most maxModels, and deletes the series of
// other models.
func (r *Replica) nameLocked(held map[string]bool) {
	for id := range r.named {
		if !held[id] {
			delete(r.named, id)
			r.set.families.modelRegistered.DeleteLabelValues(r.labels(id)...)
		}
	}
	for id := range held {
		if len(r.named) == maxModels {
			return
		}
		r.named[id] = true
		r.gaugeLocked(r.set.families.modelRegistered, id).Set(1)
	}
}
