package mixed

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

var (
	requests = flag.Int("requests", 10_000, "how many requests")
	seed     = flag.Uint64("seed", 1, "what requests are drawn from")
)

// workers is how many requests are under way at a time.
const workers = 64

// patience bounds every wait: beyond it something is stuck.
const patience = 60 * time.Second

// rounds is into how many parts the requests are cut. Between them everything
// has to come to rest.
const rounds = 4

// heapGrowth is how much more the heap may hold after the last round than after
// the first. One leaked request of each four would be more.
const heapGrowth = 2 << 20

func TestMixedRequestsLeaveNothing(t *testing.T) {
	r := start(t)
	var heap [rounds]uint64
	for round := range rounds {
		r.run(round)
		r.rest()
		r.checkSlots(round)
		r.rest()
		heap[round] = liveHeap()
	}
	t.Logf("seed %d; the heap after each round: %d; %s", *seed, heap, r.books.summary())
	if grown := int64(heap[rounds-1]) - int64(heap[0]); grown > heapGrowth {
		t.Errorf("the heap has grown by %d bytes from the first to the last of %d rounds: %d", grown, rounds, heap)
	}
	r.stop()
	r.books.check(t, r.service.plans)
	r.checkCounts()
}

// rig is a running service with its books.
type rig struct {
	t        *testing.T
	service  *service
	books    *books
	spans    *spanBooks
	server   *serving.Server
	registry *prometheus.Registry
	clients  *clients
	stop     func()
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, books: newBooks(*requests), registry: prometheus.NewRegistry()}
	r.spans = newSpanBooks(r.books)
	cfg, err := tracing.ConfigFromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	tp, err := tracing.NewProvider(cfg, r.spans)
	if err != nil {
		t.Fatal(err)
	}
	r.service = &service{witness: newWitness(), tracer: func() trace.Tracer { return tp.TracerProvider().Tracer("user") }}
	for n := range *requests {
		r.service.plans = append(r.service.plans, draw(*seed, n))
	}
	r.server, err = serving.New(serving.Config{HTTPAddr: "127.0.0.1:0", RequestTimeout: timeout}, r.service.apps(),
		serving.WithTracing(tp), serving.WithLogger(r.books.logger()))
	if err != nil {
		t.Fatal(err)
	}
	r.registry.MustRegister(r.server.Collector())
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.clients = newClients(t, r.server.Addr().String(), r.books)
	r.stop = sync.OnceFunc(func() {
		r.clients.hangUp()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := tp.Shutdown(ctx); err != nil {
			t.Errorf("shut tracing down: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// run sends the requests of a round, workers of them at a time.
func (r *rig) run(round int) {
	first, last := round**requests/rounds, (round+1)**requests/rounds
	var next atomic.Int64
	next.Store(int64(first))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for n := next.Add(1) - 1; n < int64(last); n = next.Add(1) - 1 {
				r.clients.send(r.service.plans[n])
			}
		})
	}
	all.Wait()
}

// gauges are those that are zero where nothing goes on.
var gauges = []string{
	"serve_num_ongoing_http_requests", "serve_deployment_queued_queries",
	"serve_num_ongoing_requests_at_replicas", "serve_replica_processing_queries",
}

// rest waits until nothing goes on: no request, no call, no span.
func (r *rig) rest() {
	r.t.Helper()
	r.clients.hangUp()
	r.await("rest", func() (busy string) {
		s := gather(r.t, r.registry)
		for _, name := range gauges {
			if n := s.total(name); n != 0 {
				busy += fmt.Sprintf(" %s is %d", name, n)
			}
		}
		if n := r.spans.open(); n != 0 {
			busy += fmt.Sprintf(" %d spans are open", n)
		}
		return busy
	})
}

// await looks until nothing is amiss.
func (r *rig) await(what string, amiss func() string) {
	r.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		said := amiss()
		if said == "" {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("waited in vain for %s: %s", what, said)
		}
	}
}

// checkSlots counts the slots of each deployment: as many requests get in at a
// time as its replicas have slots, and not one more.
func (r *rig) checkSlots(round int) {
	r.t.Helper()
	for path, slots := range map[string]int{"/gate": frontReplicas * frontOngoing, "/tight/gate": tightReplicas * tightOngoing} {
		const more = 2 // that do not get in
		r.service.gate.close()
		open := sync.OnceFunc(r.service.gate.open)
		defer open()
		var all sync.WaitGroup
		for i := range slots + more {
			all.Go(func() { // ends when its request is answered, which is when its time is over
				req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.clients.base+path, http.NoBody)
				if err != nil {
					r.t.Error(err)
					return
				}
				req.Header.Set("X-Request-Id", fmt.Sprintf("gate-%d-%d", round, i))
				if resp, err := r.clients.http[http1].Do(req); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
		r.await(fmt.Sprintf("%d requests in %s", slots, path), func() string {
			if n := r.service.gate.count(); n != slots {
				return fmt.Sprintf("%d are in", n)
			}
			return ""
		})
		all.Wait() // by now those that did not get in have been turned away
		if n := r.service.gate.count(); n != slots {
			r.t.Errorf("%d requests were in %s at a time, want %d", n, path, slots)
		}
		open()
	}
}

// liveHeap is what is in use after two collections, of which the first runs
// finalisers.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// checkCounts: metrics, access log, spans and user code have counted the same.
func (r *rig) checkCounts() {
	t := r.t
	t.Helper()
	s := gather(t, r.registry)
	labels := []string{"application", "route", "method", "status_code"}
	checkEqual(t, "serve_num_http_requests_total", s.by("serve_num_http_requests_total", labels...), r.books.lines)
	checkEqual(t, "serve_http_request_latency_ms", s.by("serve_http_request_latency_ms", labels...), r.books.lines)
	labels[3] = "error_code"
	checkEqual(t, "serve_num_http_error_requests_total", s.by("serve_num_http_error_requests_total", labels...), r.books.failures)

	entries, sampled := r.service.witness.calls()
	for _, deployment := range []string{"Front", "Tight"} {
		calls := s.of("serve_deployment_request_counter_total", deployment) + s.of("serve_deployment_error_counter_total", deployment)
		if calls != entries[deployment] {
			t.Errorf("replicas of %s have counted %d calls, user code %d", deployment, calls, entries[deployment])
		}
		if n := s.of("serve_deployment_processing_latency_ms", deployment); n != entries[deployment] {
			t.Errorf("replicas of %s have measured %d calls, user code has counted %d", deployment, n, entries[deployment])
		}
		if n := r.spans.of("replica_handle_request", deployment); n != sampled[deployment] {
			t.Errorf("%s has %d replica spans, user code has counted %d calls with one", deployment, n, sampled[deployment])
		}
	}
	routed := 0
	for _, n := range r.books.lines {
		routed += n
	}
	if n := s.total("serve_num_router_requests_total"); n != routed {
		t.Errorf("routers have counted %d requests, the access log has %d lines", n, routed)
	}
}
