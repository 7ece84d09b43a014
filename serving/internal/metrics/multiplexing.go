package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// mostModels bounds the models of one replica that are named.
const mostModels = 100

// Models is the metrics of one cache of models in one replica. Nil counts
// nothing.
type Models struct {
	gets, loads, unloads *tally
	load, unload         *timing
	ids                  atomic.Pointer[[]string]
}

// Models gives the metrics of a cache of models. Ask once for each: what several
// caches of a replica hold is added up.
func (r *Replica) Models() *Models {
	if r == nil {
		return nil
	}
	m := &Models{
		gets:    r.counter(modelGets),
		loads:   r.counter(modelLoads),
		unloads: r.counter(modelUnloads),
		load:    r.histogram(modelLoadLatency),
		unload:  r.histogram(modelUnloadLatency),
	}
	m.ids.Store(new([]string))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models = append(r.models, m)
	return m
}

// Asked counts a request for a model, loaded or not.
func (m *Models) Asked() {
	if m != nil {
		m.gets.inc()
	}
}

// Loaded counts a load, which took latency; failed says that there is no model
// now. span is the load span's context; zero where it does not record.
func (m *Models) Loaded(latency time.Duration, failed bool, span trace.SpanContext) {
	if m == nil {
		return
	}
	m.loads.inc()
	if !failed {
		m.load.observe(latency, span)
	}
}

// Unloaded counts a model that was unloaded, which took latency.
func (m *Models) Unloaded(latency time.Duration) {
	if m == nil {
		return
	}
	m.unloads.inc()
	m.unload.observe(latency, trace.SpanContext{})
}

// Hold says which models are loaded now, whatever they were before.
func (m *Models) Hold(ids []string) {
	if m == nil {
		return
	}
	ids = slices.Clone(ids)
	m.ids.Store(&ids)
}
