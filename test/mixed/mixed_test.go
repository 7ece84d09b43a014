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
	t.Logf("lost with their connections: %q", r.books.lost)
	if n := len(r.books.lost); n > *requests/mostLost {
		t.Errorf("%d requests were lost with their connections", n)
	}
}

// mostLost is the part of the requests, one in so many, that may be lost with
// connections which are closed as they come.
const mostLost = 1000

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
	settings := serving.Config{
		HTTPAddr: "127.0.0.1:0", RequestTimeout: timeout,
		GRPC: serving.GRPCConfig{Addr: "127.0.0.1:0", RequestTimeout: timeout},
	}
	r.server, err = serving.New(settings, r.service.apps(),
		serving.WithTracing(tp), serving.WithLogger(r.books.logger()))
	if err != nil {
		t.Fatal(err)
	}
	r.registry.MustRegister(r.server.Collector())
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.clients = newClients(t, r.server, r.books)
	r.stop = sync.OnceFunc(func() {
		r.clients.hangUp()
		_ = r.clients.grpc.Close()
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

// gauges are zero if nothing runs.
var gauges = []string{
	"serve_num_ongoing_http_requests", "serve_num_ongoing_grpc_requests", "serve_deployment_queued_queries",
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
	get := func(path string) func(context.Context, int) {
		return func(ctx context.Context, i int) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.clients.base+path, http.NoBody)
			if err != nil {
				r.t.Error(err)
				return
			}
			req.Header.Set("X-Request-Id", fmt.Sprintf("gate-%d-%d", round, i))
			if resp, err := r.clients.http[http1].Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	call := func(deployment string) func(context.Context, int) {
		return func(ctx context.Context, _ int) {
			r.service.witness.outside(deployment)
			_, _ = r.service.gates[deployment].Call(ctx, 0) // it may be refused
		}
	}
	r.fill("Front", frontReplicas*frontOngoing, get("/gate"))
	r.fill("Tight", tightReplicas*tightOngoing, get("/tight/gate"))
	r.fill("Middle", middleReplicas*middleOngoing, call("Middle"))
	r.fill("Back", backReplicas*backOngoing, call("Back"))
}

// fill sends more requests to the gate of a deployment than it has slots.
func (r *rig) fill(deployment string, slots int, send func(ctx context.Context, i int)) {
	r.t.Helper()
	const more = 2 // that do not get in
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	r.service.gate.close()
	open := sync.OnceFunc(r.service.gate.open)
	defer open()
	var all sync.WaitGroup
	for i := range slots + more {
		all.Go(func() { send(ctx, i) }) // ends when its time is over, or the gate is open
	}
	inside := func() string {
		if n := r.service.gate.count(); n != slots {
			return fmt.Sprintf("%d are in", n)
		}
		return ""
	}
	r.await(fmt.Sprintf("%d requests in %s", slots, deployment), inside)
	r.await("the others to wait, or to have been turned away", func() string {
		s := gather(r.t, r.registry)
		if n := s.of("serve_deployment_queued_queries", deployment); n != more && n != 0 {
			return fmt.Sprintf("%d wait", n)
		}
		return ""
	})
	if said := inside(); said != "" {
		r.t.Errorf("with %d slots in %s: %s", slots, deployment, said)
	}
	open()
	all.Wait()
	r.rest() // a request whose client got 408 may still be on its way to the gate
}

// liveHeap returns the size of the heap after collections. It waits until the heap no
// longer shrinks, because connections that were closed end a bit later.
func liveHeap() uint64 {
	const settled = 64 << 10
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for last := collected(); ; <-tick.C {
		size := collected()
		if size+settled > last {
			return min(size, last)
		}
		last = size
	}
}

// collected returns the size of the heap after two collections, of which the first runs
// finalisers.
func collected() uint64 {
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
	checkEqual(t, "requests", s.by("serve_num_%s_requests_total", labels...), r.books.lines)
	checkEqual(t, "latencies", s.by("serve_%s_request_latency_ms", labels...), r.books.lines)
	labels[3] = "error_code"
	checkEqual(t, "errors", s.by("serve_num_%s_error_requests_total", labels...), r.books.failures)
	r.checkReplicas(s)
	r.checkRouters(s)
	batches, sampled := r.service.witness.of("entered", "a batch")
	if n := s.total("serve_batches_processed_total"); n != batches {
		t.Errorf("%d batches were counted, user code ran %d", n, batches)
	}
	if n := r.spans.of("batch_execute", "Back"); n != sampled {
		t.Errorf("there are %d spans of batches, user code ran %d that were sampled", n, sampled)
	}
}

// checkReplicas: each call that a replica took was counted, logged, and has a
// replica span if it is sampled; and user code was entered for it, but for calls
// of gRPC that were given up before their first message was there.
func (r *rig) checkReplicas(s scrape) {
	r.t.Helper()
	for _, deployment := range []string{"Front", "Tight", "Middle", "Back"} {
		entered, sampled := r.service.witness.of("entered", deployment)
		took := entered
		if r.isCalled(deployment) {
			if n := r.books.calls[deployment]; n != entered {
				r.t.Errorf("the access log has %d calls of %s, user code %d", n, deployment, entered)
			}
		} else {
			var givenUp int
			took, sampled, givenUp = r.books.tookOver(deployment)
			if entered > took || entered < took-givenUp {
				r.t.Errorf("user code of %s was entered %d times, replicas took %d requests, of which %d were given up", deployment, entered, took, givenUp)
			}
		}
		calls := s.of("serve_deployment_request_counter_total", deployment) + s.of("serve_deployment_error_counter_total", deployment)
		if n := s.of("serve_deployment_processing_latency_ms", deployment); calls != took || n != took {
			r.t.Errorf("replicas of %s have counted %d calls and measured %d, want %d", deployment, calls, n, took)
		}
		if n := r.spans.of("replica_handle_request", deployment); n != sampled {
			r.t.Errorf("%s has %d replica spans, want %d", deployment, n, sampled)
		}
	}
}

// isCalled reports whether a deployment is called by handle.
func (r *rig) isCalled(deployment string) bool {
	_, called := r.service.gates[deployment]
	return called
}

// checkRouters: each request of a proxy and each call by handle was routed once,
// with one router span if it is sampled.
func (r *rig) checkRouters(s scrape) {
	r.t.Helper()
	routed := map[string]int{}
	for k, n := range r.books.lines {
		routed[map[string]string{"front": "Front", "tight": "Tight"}[k.app]] += n
	}
	for _, deployment := range []string{"Front", "Tight", "Middle", "Back"} {
		calls, sampled := r.service.witness.of("calls", deployment)
		want := routed[deployment] + calls
		if n := s.of("serve_num_router_requests_total", deployment); n != want {
			r.t.Errorf("the router of %s has counted %d requests, the access log and user code %d", deployment, n, want)
		}
		if n := s.of("serve_handle_request_counter_total", deployment); n != calls {
			r.t.Errorf("the router of %s has counted %d calls by handle, user code %d", deployment, n, calls)
		}
		if n := r.spans.of("route_to_replica", deployment); r.isCalled(deployment) && n != sampled {
			r.t.Errorf("%s has %d router spans, user code has made %d calls that are sampled", deployment, n, sampled)
		}
	}
}
