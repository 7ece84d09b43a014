package serving

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// seat is a runner of which the router only needs name and limit.
type seat struct {
	name string
	max  int

	refuses atomic.Bool // it is to stop
	holds   atomic.Pointer[[]string]
}

func (s *seat) id() ReplicaID { return ReplicaID{UniqueID: s.name} }
func (s *seat) limit() int    { return s.max }
func (s *seat) accept() bool  { return !s.refuses.Load() }
func (s *seat) models() []string {
	if ids := s.holds.Load(); ids != nil {
		return *ids
	}
	return nil
}
func (s *seat) cut() <-chan struct{} { return nil }
func (s *seat) run(context.Context, call) error {
	return errors.New("a seat runs nothing")
}

func seats(limit, n int) []runner {
	var out []runner
	for i := range n {
		out = append(out, &seat{name: "r" + strconv.Itoa(i), max: limit})
	}
	return out
}

func seatedRouter(maxQueued int, runners []runner) *router {
	r := newRouter(context.Background(), "D", maxQueued)
	r.update(runners)
	return r
}

func mustAcquire(t *testing.T, r *router) *member {
	t.Helper()
	m, _, err := r.acquire(t.Context(), "")
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return m
}

// TestLessLoadedOfTwo scripts the draws and looks who is taken.
func TestLessLoadedOfTwo(t *testing.T) {
	r := seatedRouter(-1, seats(10, 3))
	for i, load := range []int{4, 2, 3} {
		r.members[i].ongoing = load
	}
	for _, tt := range []struct {
		draws []int // of the first among 3, then of the second among the other 2
		want  string
	}{
		{[]int{0, 0}, "r1"}, // r0 (4) or r1 (2)
		{[]int{0, 1}, "r2"}, // r0 (4) or r2 (3)
		{[]int{1, 1}, "r1"}, // r1 (2) or r2 (3)
		{[]int{2, 0}, "r2"}, // r2 (3) or r0 (4)
	} {
		draws := tt.draws
		r.free.draw = func(int) int {
			d := draws[0]
			draws = draws[1:]
			return d
		}
		m := mustAcquire(t, r)
		if m.runner.id().UniqueID != tt.want {
			t.Errorf("draws %v took %v, want %v", tt.draws, m.runner.id().UniqueID, tt.want)
		}
		r.release(m, "")
	}
}

// TestLoadsStayEven holds the law of two choices against one: with one, the
// fullest of 100 replicas would be some 30 above the mean of 100.
func TestLoadsStayEven(t *testing.T) {
	r := seatedRouter(-1, seats(1000, 100))
	r.free.draw = rand.New(rand.NewPCG(1, 2)).IntN
	for range 100 * 100 {
		mustAcquire(t, r)
	}
	for _, m := range r.members {
		if m.ongoing > 105 {
			t.Errorf("%v has %d requests, the mean is 100", m.runner.id().UniqueID, m.ongoing)
		}
	}
}

func TestFullReplicasAreNotTaken(t *testing.T) {
	r := seatedRouter(0, seats(3, 4))
	for range 12 {
		mustAcquire(t, r)
	}
	for _, m := range r.members {
		if m.ongoing != 3 {
			t.Errorf("%v has %d requests, want 3", m.runner.id().UniqueID, m.ongoing)
		}
	}
	_, _, err := r.acquire(t.Context(), "")
	want := &QueueFullError{Deployment: "D", Queued: 0, Limit: 0}
	if full, ok := errors.AsType[*QueueFullError](err); !ok || *full != *want {
		t.Errorf("thirteenth request: %v, want %v", err, want)
	}
}

// TestFirstComeFirstServed: slots go to waiters in the order in which they
// came, and one that comes later does not overtake though a slot frees.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := seatedRouter(-1, seats(1, 2))
		held := []*member{mustAcquire(t, r), mustAcquire(t, r)}
		var order []int
		taken := make(chan *member, 8)
		wait := func(i int, ctx context.Context) {
			go func() {
				m, waited, err := r.acquire(ctx, "")
				if err != nil {
					return
				}
				if want := time.Duration(8-i) * time.Second; waited != want {
					t.Errorf("request %d waited %v, want %v", i, waited, want)
				}
				order = append(order, i)
				taken <- m
			}()
			synctest.Wait()
			<-time.After(time.Second) // of the bubble
		}
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 8 {
			if i == 3 {
				wait(i, ctx)
			} else {
				wait(i, t.Context())
			}
		}
		cancel()
		synctest.Wait()
		for i := range 7 {
			m := held[0]
			held = held[1:]
			r.release(m, "")
			synctest.Wait()
			if len(order) != i+1 {
				t.Fatalf("after %d releases %d requests run", i+1, len(order))
			}
			held = append(held, <-taken)
		}
		if diff := cmp.Diff([]int{0, 1, 2, 4, 5, 6, 7}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// queue puts a waiter at the end of the queue.
func queue(r *router, model string) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals++
	w := newWaiter(model, r.arrivals)
	w.place = r.waiting.PushBack(w)
	return w
}

// TestGivenUpGrant: a slot that is granted to a waiter in the moment in which
// it gives up goes on to the next.
func TestGivenUpGrant(t *testing.T) {
	r := seatedRouter(-1, seats(1, 1))
	m := mustAcquire(t, r)
	first, next := queue(r, ""), queue(r, "")
	r.release(m, "") // to the first
	r.giveUp(first)
	select {
	case got := <-next.granted:
		if got != m {
			t.Errorf("granted %v, want %v", got, m)
		}
	default:
		t.Error("the slot was lost")
	}
}

// TestRefusalsAreOneSpan: one router span covers the refusal and what follows.
func TestRefusalsAreOneSpan(t *testing.T) {
	list := seats(1, 3)
	list[0].(*seat).refuses.Store(true)
	list[1].(*seat).refuses.Store(true)
	ended := newSpanLog()
	tp := provider(t, ended)
	to := &target{app: "a", deployment: "D", router: seatedRouter(0, list), tracing: spans.New(tp)}
	to.metrics = metrics.New().Router("a", "D", to.router.load)
	_, a, err := to.assign(t.Context(), spans.RouterStart{})
	if err != nil || a.uniqueID() != "r2" {
		t.Errorf("assigned to %v, %v; want r2", a.uniqueID(), err)
	}
	if diff := cmp.Diff([]string{"route_to_replica"}, digests(ended.take(t, 1))); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	_ = tp.Shutdown(t.Context())
}

func TestUpdateReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := seats(1, 2)
		r := seatedRouter(-1, two[:1])
		old := mustAcquire(t, r)
		got := make(chan *member, 1)
		go func() {
			m, _, _ := r.acquire(t.Context(), "")
			got <- m
		}()
		synctest.Wait()
		r.update(two[1:]) // the waiter goes to the new one, the old one finishes
		if m := <-got; m.runner != two[1] {
			t.Errorf("waiter went to %v, want r1", m.runner.id().UniqueID)
		}
		r.release(old, "")
		if n := len(r.free.members); n != 0 {
			t.Errorf("%d replicas free, want none: r0 is gone, r1 full", n)
		}
		r.update(two)
		if m := mustAcquire(t, r); m.runner != two[0] {
			t.Errorf("took %v, want r0, which is back", m.runner.id().UniqueID)
		}
	})
}

// TestRouterConcurrentSafe: no replica ever has more than its limit, and in the
// end every slot is free.
func TestRouterConcurrentSafe(t *testing.T) {
	const limit = 2
	list := seats(limit, 3)
	r := seatedRouter(-1, list)
	running := make(map[runner]*atomic.Int32)
	for _, s := range list {
		running[s] = new(atomic.Int32)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+j)%5 == 0 {
					go cancel()
				}
				if m, _, err := r.acquire(ctx, ""); err == nil {
					if n := running[m.runner].Add(1); n > limit {
						t.Errorf("%d requests run in one replica, its limit is %d", n, limit)
					}
					running[m.runner].Add(-1)
					r.release(m, "")
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for _, m := range r.members {
		if m.ongoing != 0 || !slices.Contains(r.free.members, m) {
			t.Errorf("%v: ongoing %d, free %v", m.runner.id().UniqueID, m.ongoing, slices.Contains(r.free.members, m))
		}
	}
	if r.waiting.Len() != 0 {
		t.Errorf("%d waiters left", r.waiting.Len())
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	r := seatedRouter(-1, seats(5, 4))
	b.ReportAllocs()
	for b.Loop() {
		m, _, err := r.acquire(b.Context(), "")
		if err != nil {
			b.Fatal(err)
		}
		r.release(m, "")
	}
}

// TestRouterCutOff: a slot that is free because its request was cut off does not go to
// a request that waits and is cut off too.
func TestRouterCutOff(t *testing.T) {
	server, cut := context.WithCancelCause(t.Context())
	r := newRouter(server, "D", -1)
	r.update(seats(1, 1))
	m := mustAcquire(t, r)
	failed := make(chan error, 1)
	go func() {
		_, _, err := r.acquire(t.Context(), "")
		failed <- err
	}()
	await(t, "the queue", func() bool { return queuedAt(r) == 1 })
	r.mu.Lock() // the router wakes the request only after both
	cut(ErrShuttingDown)
	r.releaseLocked(m, "")
	r.mu.Unlock()
	if err := receive(t, "the end of the wait", failed); !sameError(err, ErrShuttingDown) {
		t.Errorf("the request that waited: %v, want %v", err, ErrShuttingDown)
	}
	if queued, ongoing := r.load(); queued != 0 || ongoing != 0 {
		t.Errorf("%d requests wait and %d have a slot, want 0 and 0", queued, ongoing)
	}
}
