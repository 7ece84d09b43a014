package metrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// mostStopped is how many replicas that have stopped keep their counts, so that
// the last of them are scraped.
const mostStopped = 100

type replicaKey struct{ app, deployment, id string }

// Replica is the metrics of one replica. Nil counts nothing.
type Replica struct {
	set        *Set
	key        replicaKey
	processing atomic.Int64
	calls      *table[string, *calls] // by route

	mu       sync.Mutex
	taking   bool // calls, so that it has gauges of its health
	healthy  bool
	batchers map[string]*Batcher
	models   []*Models
}

// calls is the series of one route.
type calls struct{ done, failed *timing }

// Replica gives the metrics of the replica with the unique id: the same ones to
// all who ask, until it has stopped.
func (s *Set) Replica(app, deployment, id string) *Replica {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := replicaKey{app, deployment, id}
	r, known := s.replicas[key]
	if !known {
		r = &Replica{set: s, key: key, batchers: map[string]*Batcher{}}
		r.calls = newTable(mostRoutes, otherRoute, func(route string) *calls {
			c := &calls{
				done:   s.partOf(replicaLatency, app, deployment, id, route),
				failed: s.partOf(replicaLatency, app, deployment, id, route),
			}
			s.counts(replicaRequests, []counted{c.done}, app, deployment, id, route)
			s.counts(replicaErrors, []counted{c.failed}, app, deployment, id, route)
			return c
		})
		s.replicas[key] = r
	}
	return r
}

func (r *Replica) counter(f *family, more ...string) *tally {
	return r.set.counter(f, r.labels(more)...)
}

func (r *Replica) histogram(f *family, more ...string) *timing {
	return r.set.histogram(f, r.labels(more)...)
}

func (r *Replica) labels(more []string) []string {
	return append([]string{r.key.app, r.key.deployment, r.key.id}, more...)
}

// Began says that user code is about to run for a call. Done follows.
func (r *Replica) Began() {
	if r != nil {
		r.processing.Add(1)
	}
}

// Done counts a call of which user code has returned, at ended by a clock of the
// caller's. failed says that it was by an error, a panic or a cancellation. span is
// the replica span's context; zero where it does not record.
func (r *Replica) Done(route string, latency, ended time.Duration, failed bool, span trace.SpanContext) {
	if r == nil {
		return
	}
	r.processing.Add(-1)
	calls := r.calls.get(route)
	if failed {
		calls.failed.observeAt(latency, ended, span)
	} else {
		calls.done.observeAt(latency, ended, span)
	}
}

// Processing is how many calls user code is working on.
func (r *Replica) Processing() int {
	if r == nil {
		return 0
	}
	return int(r.processing.Load())
}

// Constructed says that the replica's constructor has made it, which took latency.
func (r *Replica) Constructed(latency time.Duration) {
	if r != nil {
		r.histogram(replicaInitialized).observe(latency, trace.SpanContext{})
	}
}

// Started says that the replica takes calls from now on. Call it once.
func (r *Replica) Started() {
	if r == nil {
		return
	}
	r.counter(replicaStarts).inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taking, r.healthy = true, true
}

// Checked counts a health check of user code, which took latency. healthy says
// that it passed.
func (r *Replica) Checked(latency time.Duration, healthy bool) {
	if r == nil {
		return
	}
	r.histogram(replicaChecked).observe(latency, trace.SpanContext{})
	failures := r.counter(replicaUnhealthy)
	if !healthy {
		failures.inc()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healthy = healthy
}

// Reconfigured says that user code has taken, or refused, a new configuration,
// which took latency.
func (r *Replica) Reconfigured(latency time.Duration) {
	if r != nil {
		r.histogram(replicaReconfigured).observe(latency, trace.SpanContext{})
	}
}

// Stopped says that the replica is no more, and how long its stop took. Its
// gauges end; its counts stay until a hundred others have stopped.
func (r *Replica) Stopped(latency time.Duration) {
	if r == nil {
		return
	}
	s := r.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas[r.key] != r {
		return // it was said before
	}
	r.histogram(replicaShutDown).observe(latency, trace.SpanContext{})
	delete(s.replicas, r.key)
	s.stopped = append(s.stopped, r)
	if len(s.stopped) > mostStopped {
		oldest := s.stopped[0].key
		s.stopped = slices.Delete(s.stopped, 0, 1)
		s.forget(oldest.app, oldest.deployment, oldest.id)
	}
}

func (r *Replica) gauges(out emit) {
	out(replicaProcessing, int(r.processing.Load()), r.labels(nil)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taking {
		healthy := 0
		if r.healthy {
			healthy = 1
		}
		out(replicaHealthy, healthy, r.labels(nil)...)
	}
	for name, b := range r.batchers {
		out(batchQueued, int(b.queued.Load()), r.labels([]string{name})...)
	}
	if len(r.models) == 0 {
		return
	}
	loaded := map[string]bool{}
	for _, m := range r.models {
		for _, id := range *m.ids.Load() {
			loaded[clean([]string{id})[0]] = true
		}
	}
	out(modelsLoaded, len(loaded), r.labels(nil)...)
	shown := 0
	for id := range loaded {
		if shown++; shown > mostModels {
			break
		}
		out(modelRegistered, 1, r.labels([]string{id})...)
	}
}
