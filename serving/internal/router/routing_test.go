package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

func setModels(r *router, replica *Replica, ids ...string) {
	replica.holds.Store(&ids)
	r.announce(replica)
}

// mustGet acquires a slot for a model and returns the name of its replica.
func mustGet(t *testing.T, list seats, r *router, model string) (*member, string) {
	t.Helper()
	m, _, err := r.acquire(t.Context(), model)
	if err != nil {
		t.Fatalf("acquire for %q: %v", model, err)
	}
	return m, list.name(m)
}

// TestModelsGoToTheirHolders: to a holder while it has a slot, else to those
// with the fewest models; and a model counts as held from the first request on.
func TestModelsGoToTheirHolders(t *testing.T) {
	list := newSeats(3)
	r := seatedRouter(0, 2, list)
	setModels(r, list[0], "a", "b")
	setModels(r, list[1], "c")
	for _, step := range []struct{ model, want string }{
		{"a", "r0"},
		{"b", "r0"},
		{"a", "r2"}, // r0 is full, r2 has none
		{"d", "r1"}, // r1 and r2 have one each, but r2 may be drawn: see below
	} {
		if step.model == "d" {
			setModels(r, list[2], "a", "x")
		}
		if _, got := mustGet(t, list, r, step.model); got != step.want {
			t.Errorf("model %q went to %v, want %v", step.model, got, step.want)
		}
	}
	m, got := mustGet(t, list, r, "d")
	if got != "r1" {
		t.Errorf("second request for d went to %v, want r1, where it is being loaded", got)
	}
	if n := m.held(); n != 2 {
		t.Errorf("r1 has %d models, want 2: c, and d on its way", n)
	}
	r.release(m, "d")
	r.release(m, "d")
	if m.holds("d") {
		t.Error("r1 holds d, which it never announced, without a request for it")
	}
	// A request without a model goes anywhere.
	if _, _, err := r.acquire(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// TestFewestModels: those with more models are not even drawn.
func TestFewestModels(t *testing.T) {
	for seed := range uint64(50) {
		list := newSeats(4)
		r := seatedRouter(-1, 9, list)
		r.free.draw = rand.New(rand.NewPCG(seed, 1)).IntN
		setModels(r, list[0], "a")
		setModels(r, list[1], "a", "b")
		if _, got := mustGet(t, list, r, "z"); got != "r2" && got != "r3" {
			t.Fatalf("seed %d: took %v, want r2 or r3, which have no models", seed, got)
		}
	}
}

// TestMatchGoesFirst: the slot of a holder goes to the first that wants its
// model, but nobody is passed over for longer than the window, and one without a
// model never is.
func TestMatchGoesFirst(t *testing.T) {
	for name, c := range map[string]struct {
		queue  []string // models, one request a second apart from the last
		waited time.Duration
		want   int
	}{
		"the first has it":         {[]string{"a", "a"}, 0, 0},
		"the third has it":         {[]string{"b", "c", "a"}, 0, 2},
		"nobody has it":            {[]string{"b", "c"}, 0, 0},
		"the first has no model":   {[]string{"", "a"}, 0, 0},
		"one before has no model":  {[]string{"b", "", "a"}, 0, 0},
		"the first waited so long": {[]string{"b", "a"}, matchWindow, 0},
		"just not so long":         {[]string{"b", "a"}, matchWindow - 1, 1},
		"too far down":             {append(slices.Repeat([]string{"b"}, matchDepth+1), "a"), 0, 0},
		"just not too far":         {append(slices.Repeat([]string{"b"}, matchDepth), "a"), 0, matchDepth},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := newSeats(1)
				r := seatedRouter(-1, 1, list)
				setModels(r, list[0], "a")
				m := mustAcquire(t, r)
				var waiters []queued
				for _, model := range c.queue {
					waiters = append(waiters, queue(r, model))
				}
				time.Sleep(c.waited)
				r.release(m, "")
				got := slices.IndexFunc(waiters, func(w queued) bool { return len(w.granted) == 1 })
				if got != c.want {
					t.Errorf("the slot went to %d, want %d", got, c.want)
				}
			})
		})
	}
}

// TestNewReplicaServesTheFirst: what waits gets a replica that appears, in order.
func TestNewReplicaServesTheFirst(t *testing.T) {
	r := seatedRouter(-1, 2, nil)
	waiters := []queued{queue(r, "a"), queue(r, ""), queue(r, "a")}
	r.add(new(Replica))
	var got []int
	for _, w := range waiters {
		got = append(got, len(w.granted))
	}
	if !slices.Equal(got, []int{1, 1, 0}) {
		t.Errorf("granted %v, want 1 1 0", got)
	}
}

// TestLimitsChange: a lower limit gives no slot until enough are back, a higher
// one gives slots to those that wait at once.
func TestLimitsChange(t *testing.T) {
	r := seatedRouter(-1, 2, newSeats(1))
	m := mustAcquire(t, r)
	mustAcquire(t, r)
	w := []queued{queue(r, ""), queue(r, "")}
	r.limits(1, -1)
	r.release(m, "")
	if len(w[0].granted) != 0 {
		t.Error("a slot was granted beyond the lower limit")
	}
	r.limits(3, -1)
	if len(w[0].granted) != 1 || len(w[1].granted) != 1 || m.ongoing != 3 || len(r.free.members) != 0 {
		t.Errorf("after the higher limit: granted %d %d, ongoing %d, free %d; want 1 1, 3, 0",
			len(w[0].granted), len(w[1].granted), m.ongoing, len(r.free.members))
	}
	r.limits(3, 0)
	if _, _, err := r.acquire(t.Context(), ""); !cause.IsRefusal(err) {
		t.Errorf("beyond the lower limit of the queue: %v", err)
	}
}

// TestRemoved: a replica that is removed says when its last request is over.
func TestRemoved(t *testing.T) {
	list := newSeats(2)
	r := seatedRouter(0, 2, list[:1])
	m := mustAcquire(t, r)
	idle := r.remove(list[0])
	select {
	case <-idle:
		t.Error("idle with a request")
	default:
	}
	if _, _, err := r.acquire(t.Context(), ""); !cause.IsRefusal(err) {
		t.Errorf("acquired a replica that was removed: %v", err)
	}
	r.release(m, "")
	<-idle
	<-r.remove(list[1]) // not listed: idle at once
}

// TestFailure: a deployment that is unavailable says so at once to those that
// come and to those that wait, and takes requests again when it is not.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := seatedRouter(-1, 1, nil)
		want := &cause.DeploymentUnavailableError{App: "a", Deployment: "D"}
		failed := make(chan error, 1)
		go func() {
			_, _, err := r.acquire(t.Context(), "")
			failed <- err
		}()
		synctest.Wait()
		r.fail(want)
		if err := <-failed; err != want {
			t.Errorf("the one that waited: %v", err)
		}
		if _, _, err := r.acquire(t.Context(), ""); err != want {
			t.Errorf("the next: %v", err)
		}
		r.fail(nil)
		r.add(new(Replica))
		mustAcquire(t, r)
	})
}

// TestRouterKeepsItsRules calls the methods of a router at random, from one
// goroutine and with given seeds, and holds after each step: no member runs more
// than its limit but where that was lowered, free has those with a slot and no
// others, nobody waits beside a free slot, those that wait are in the order of
// their arrival, and all that was granted is counted, with its model.
func TestRouterKeepsItsRules(t *testing.T) {
	for seed := range uint64(200) {
		b := &ruled{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 7))}
		b.router = newRouter(t.Context(), 2, -1, cause.QueueFullError{})
		b.router.free.draw = b.rand.IntN
		for range 300 {
			b.step()
			b.check()
			if t.Failed() {
				return
			}
		}
	}
}

type ruled struct {
	t       *testing.T
	seed    uint64
	rand    *rand.Rand
	router  *router
	listed  seats
	waiters []queued
	held    []heldSlot
}

type heldSlot struct {
	m     *member
	model string
}

func (b *ruled) model() string { return []string{"", "", "a", "b", "c"}[b.rand.IntN(5)] }

// step does one thing, as acquire and await would, without their waiting.
func (b *ruled) step() {
	r := b.router
	switch b.rand.IntN(9) {
	case 0, 1, 2:
		model := b.model()
		r.mu.Lock()
		m, _ := r.takeFreeLocked(model, true)
		r.mu.Unlock()
		if m != nil {
			b.held = append(b.held, heldSlot{m, model})
		} else {
			b.waiters = append(b.waiters, queue(r, model))
		}
	case 3, 4:
		if i := b.rand.IntN(len(b.held) + 1); i < len(b.held) {
			r.release(b.held[i].m, b.held[i].model)
			b.held = slices.Delete(b.held, i, i+1)
		}
	case 5:
		if i := b.rand.IntN(len(b.waiters) + 1); i < len(b.waiters) {
			r.giveUp(b.waiters[i].waiter, b.waiters[i].place)
			b.waiters = slices.Delete(b.waiters, i, i+1)
		}
	case 6:
		if len(b.listed) < 4 && b.rand.IntN(2) == 0 {
			b.listed = append(b.listed, new(Replica))
			r.add(b.listed[len(b.listed)-1])
		} else {
			r.limits(1+b.rand.IntN(3), -1)
		}
	case 7:
		if i := b.rand.IntN(len(b.listed) + 3); i < len(b.listed) {
			r.remove(b.listed[i])
			b.listed = slices.Delete(b.listed, i, i+1)
		}
	case 8:
		if len(b.listed) > 0 {
			setModels(r, b.listed[b.rand.IntN(len(b.listed))], b.model(), "x")
		}
	}
	b.accept()
}

// accept takes the slots that were granted.
func (b *ruled) accept() {
	b.waiters = slices.DeleteFunc(b.waiters, func(w queued) bool {
		select {
		case m := <-w.granted:
			b.held = append(b.held, heldSlot{m, w.model})
			return true
		default:
			return false
		}
	})
}

func (b *ruled) check() {
	r := b.router
	slots, models := map[*member]int{}, map[*member]int{}
	for _, h := range b.held {
		slots[h.m]++
		if h.model != "" {
			models[h.m]++
		}
	}
	for _, m := range r.members {
		withModel := 0
		for _, s := range m.sent {
			withModel += s.ongoing
		}
		if m.ongoing != slots[m] || withModel != models[m] {
			b.t.Errorf("seed %d: %v counts %d requests, %d with a model; %d and %d run", b.seed, b.listed.name(m), m.ongoing, withModel, slots[m], models[m])
		}
		if free := m.ongoing < r.limit; free != (m.at >= 0) || free != slices.Contains(r.free.members, m) {
			b.t.Errorf("seed %d: %v has %d of %d, its place is %d", b.seed, b.listed.name(m), m.ongoing, r.limit, m.at)
		}
	}
	if r.waiting.Len() > 0 && len(r.free.members) > 0 {
		b.t.Errorf("seed %d: %d wait beside a free slot", b.seed, r.waiting.Len())
	}
	if r.waiting.Len() != len(b.waiters) {
		b.t.Errorf("seed %d: %d in the queue, %d wait", b.seed, r.waiting.Len(), len(b.waiters))
	}
	at := r.waiting.Front()
	for i, w := range b.waiters { // in the order of their arrival
		if at == nil || at.Value != w.waiter {
			b.t.Errorf("seed %d: place %d of the queue has another request", b.seed, i)
			return
		}
		at = at.Next()
	}
}

// TestQueueLimitConcurrentSafe: of many that come at once, as many wait as may, and all
// others are turned away.
func TestQueueLimitConcurrentSafe(t *testing.T) {
	const limit, crowd = 7, 40
	r := seatedRouter(limit, 1, newSeats(1))
	m := mustAcquire(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	refused := make(chan error, crowd)
	for range crowd {
		wg.Go(func() {
			if _, _, err := r.acquire(ctx, ""); err != nil && !errors.Is(err, context.Canceled) {
				refused <- err
			}
		})
	}
	for range crowd - limit {
		want := &cause.QueueFullError{Deployment: "D", Queued: limit, Limit: limit}
		if diff := cmp.Diff(want, <-refused); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	awaitQueue(t, r, limit)
	cancel()
	wg.Wait()
	r.release(m, "")
	if len(refused) > 0 || queuedAt(r) != 0 || len(r.free.members) != 1 {
		t.Errorf("%d more were refused, %d wait, %d free", len(refused), queuedAt(r), len(r.free.members))
	}
}

// awaitQueue waits until n requests wait for a slot.
func awaitQueue(t *testing.T, r *router, n int) {
	t.Helper()
	for queuedAt(r) != n {
		if t.Context().Err() != nil {
			return
		}
		runtime.Gosched()
	}
}

// queuedAt returns how many requests wait for a slot.
func queuedAt(r *router) int {
	queued, _ := r.load()
	return queued
}
