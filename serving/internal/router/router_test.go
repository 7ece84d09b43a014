package router

import (
	"container/list"
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

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// seats are replicas of tests. They have only their names: r0, r1 and so on.
type seats []*Replica

func newSeats(n int) seats {
	list := make(seats, n)
	for i := range list {
		list[i] = new(Replica)
	}
	return list
}

// name returns the name of a member's replica.
func (s seats) name(m *member) string { return "r" + strconv.Itoa(slices.Index(s, m.replica)) }

// seatedRouter returns a router with the replicas, which run limit requests at a time.
func seatedRouter(maxQueued, limit int, list seats) *router {
	r := newRouter(context.Background(), limit, maxQueued, cause.QueueFullError{Deployment: "D"})
	for _, replica := range list {
		r.add(replica)
	}
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

// TestLessLoadedOfTwo scripts the draws and checks the chosen replica.
func TestLessLoadedOfTwo(t *testing.T) {
	list := newSeats(3)
	r := seatedRouter(-1, 10, list)
	for i, load := range []int{4, 2, 3} {
		r.members[list[i]].ongoing = load
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
		if got := list.name(m); got != tt.want {
			t.Errorf("draws %v took %v, want %v", tt.draws, got, tt.want)
		}
		r.release(m, "")
	}
}

// TestLoadsStayEven holds the law of two choices against one: with one, the
// fullest of 100 replicas would be some 30 above the mean of 100.
func TestLoadsStayEven(t *testing.T) {
	list := newSeats(100)
	r := seatedRouter(-1, 1000, list)
	r.free.draw = rand.New(rand.NewPCG(1, 2)).IntN
	for range 100 * 100 {
		mustAcquire(t, r)
	}
	for _, m := range r.members {
		if m.ongoing > 105 {
			t.Errorf("%v has %d requests, the mean is 100", list.name(m), m.ongoing)
		}
	}
}

func TestFullReplicasAreNotTaken(t *testing.T) {
	list := newSeats(4)
	r := seatedRouter(0, 3, list)
	for range 12 {
		mustAcquire(t, r)
	}
	for _, m := range r.members {
		if m.ongoing != 3 {
			t.Errorf("%v has %d requests, want 3", list.name(m), m.ongoing)
		}
	}
	_, _, err := r.acquire(t.Context(), "")
	want := &cause.QueueFullError{Deployment: "D", Queued: 0, Limit: 0}
	if full, ok := errors.AsType[*cause.QueueFullError](err); !ok || *full != *want {
		t.Errorf("thirteenth request: %v, want %v", err, want)
	}
}

// TestFirstComeFirstServed: slots go to waiters in the order in which they
// came, and one that comes later does not overtake though a slot frees.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := seatedRouter(-1, 1, newSeats(2))
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

// queued is a waiter with its place in the queue.
type queued struct {
	*waiter

	place *list.Element
}

// queue puts a waiter at the end of the queue.
func queue(r *router, model string) queued {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &waiter{model: model, since: time.Now(), granted: make(chan *member, 1)}
	return queued{w, r.waiting.PushBack(w)}
}

// TestGivenUpGrant: a slot that is granted to a waiter in the moment in which
// it gives up goes on to the next.
func TestGivenUpGrant(t *testing.T) {
	r := seatedRouter(-1, 1, newSeats(1))
	m := mustAcquire(t, r)
	first, next := queue(r, ""), queue(r, "")
	r.release(m, "") // to the first
	r.giveUp(first.waiter, first.place)
	select {
	case got := <-next.granted:
		if got != m {
			t.Errorf("granted %v, want %v", got, m)
		}
	default:
		t.Error("the slot was lost")
	}
}

// TestReplicasComeAndGo: a waiter gets a slot of a new replica, and a removed replica
// finishes its request.
func TestReplicasComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := newSeats(2)
		r := seatedRouter(-1, 1, two[:1])
		old := mustAcquire(t, r)
		got := make(chan *member, 1)
		go func() {
			m, _, _ := r.acquire(t.Context(), "")
			got <- m
		}()
		synctest.Wait()
		r.remove(two[0])
		r.add(two[1])
		if m := <-got; m.replica != two[1] {
			t.Errorf("waiter went to %v, want r1", two.name(m))
		}
		r.release(old, "")
		if n := len(r.free.members); n != 0 {
			t.Errorf("%d replicas free, want none: r0 is gone, r1 full", n)
		}
		r.add(two[0])
		if m := mustAcquire(t, r); m.replica != two[0] {
			t.Errorf("took %v, want r0, which is back", two.name(m))
		}
	})
}

// TestRouterConcurrentSafe: no replica ever has more than its limit, and in the
// end every slot is free.
func TestRouterConcurrentSafe(t *testing.T) {
	const limit = 2
	list := newSeats(3)
	r := seatedRouter(-1, limit, list)
	running := make(map[*Replica]*atomic.Int32)
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
					if n := running[m.replica].Add(1); n > limit {
						t.Errorf("%d requests run in one replica, its limit is %d", n, limit)
					}
					running[m.replica].Add(-1)
					r.release(m, "")
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for _, m := range r.members {
		if m.ongoing != 0 || !slices.Contains(r.free.members, m) {
			t.Errorf("%v: ongoing %d, free %v", list.name(m), m.ongoing, slices.Contains(r.free.members, m))
		}
	}
	if r.waiting.Len() != 0 {
		t.Errorf("%d waiters left", r.waiting.Len())
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	r := seatedRouter(-1, 5, newSeats(4))
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
	r := newRouter(server, 1, -1, cause.QueueFullError{})
	r.add(new(Replica))
	m := mustAcquire(t, r)
	failed := make(chan error, 1)
	go func() {
		_, _, err := r.acquire(t.Context(), "")
		failed <- err
	}()
	awaitQueue(t, r, 1)
	r.mu.Lock() // the router wakes the request only after both
	cut(cause.ErrShuttingDown)
	r.releaseLocked(m, "")
	r.mu.Unlock()
	if err := <-failed; err != cause.ErrShuttingDown {
		t.Errorf("the request that waited: %v, want %v", err, cause.ErrShuttingDown)
	}
	if queued, ongoing := r.load(); queued != 0 || ongoing != 0 {
		t.Errorf("%d requests wait and %d have a slot, want 0 and 0", queued, ongoing)
	}
}
