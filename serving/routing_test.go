package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (s *seat) setModels(r *router, ids ...string) {
	s.holds.Store(&ids)
	r.announce(s)
}

// mustGet acquires a slot for a model and says of which replica.
func mustGet(t *testing.T, r *router, model string) (*member, string) {
	t.Helper()
	m, _, err := r.acquire(t.Context(), model)
	if err != nil {
		t.Fatalf("acquire for %q: %v", model, err)
	}
	return m, m.runner.id().UniqueID
}

// TestRefusalKeepsThePlace: requests that a replica refuses as it drains are
// before all that came after them, in the order in which they came, and the
// queue's limit does not turn them away.
func TestRefusalKeepsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := seats(1, 2)
		r := seatedRouter(3, list)
		held := []*member{mustAcquire(t, r), mustAcquire(t, r)}
		order, next := make(chan int, 3), make(chan struct{})
		for i := range 3 {
			go func() {
				m, wait, err := r.acquire(t.Context(), "")
				if err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
				if want := time.Duration(3-i) * time.Second; wait != want {
					t.Errorf("request %d waited %v, want %v: a refusal counts", i, wait, want)
				}
				order <- i
				<-next
				r.release(m, "")
			}()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		list[0].(*seat).refuses.Store(true)
		r.mu.Lock() // both slots are granted before anybody hears of it
		for _, m := range held {
			r.releaseLocked(m, "")
		}
		r.mu.Unlock()
		for range 3 {
			synctest.Wait()
			next <- struct{}{}
		}
		synctest.Wait()
		close(order)
		var got []int
		for i := range order {
			got = append(got, i)
		}
		// One of the first two had the slot that refuses, and comes next.
		if len(got) != 3 || got[2] != 2 {
			t.Errorf("order %v, want the last to be 2", got)
		}
		if free := r.free.members; len(free) != 1 || free[0].runner != list[1] {
			t.Errorf("free: %v, want r1 only: r0 refuses", free)
		}
	})
}

// TestRefusedInTurn: of several that are refused, the first to come is the first
// again, whichever comes back first.
func TestRefusedInTurn(t *testing.T) {
	r := seatedRouter(-1, seats(2, 1))
	m, _ := mustAcquire(t, r), mustAcquire(t, r)
	first, second, third := newWaiter("", 1), newWaiter("", 2), newWaiter("", 3)
	third.place = r.waiting.PushBack(third)
	if r.again(second, m) != nil || r.again(first, m) != nil {
		t.Fatal("a replica that refused was given")
	}
	var order []uint64
	for at := r.waiting.Front(); at != nil; at = at.Next() {
		order = append(order, at.Value.(*waiter).arrival)
	}
	if !slices.Equal(order, []uint64{1, 2, 3}) {
		t.Errorf("order %v, want 1 2 3", order)
	}
	if m.ongoing != 0 {
		t.Errorf("%d slots of the replica that refused are still taken", m.ongoing)
	}
}

// TestModelsGoToTheirHolders: to a holder while it has a slot, else to those
// with the fewest models; and a model counts as held from the first request on.
func TestModelsGoToTheirHolders(t *testing.T) {
	list := seats(2, 3)
	r := seatedRouter(0, list)
	list[0].(*seat).setModels(r, "a", "b")
	list[1].(*seat).setModels(r, "c")
	for _, step := range []struct{ model, want string }{
		{"a", "r0"},
		{"b", "r0"},
		{"a", "r2"}, // r0 is full, r2 has none
		{"d", "r1"}, // r1 and r2 have one each, but r2 may be drawn: see below
	} {
		if step.model == "d" {
			list[2].(*seat).setModels(r, "a", "x")
		}
		if _, got := mustGet(t, r, step.model); got != step.want {
			t.Errorf("model %q went to %v, want %v", step.model, got, step.want)
		}
	}
	m, got := mustGet(t, r, "d")
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
		list := seats(9, 4)
		r := seatedRouter(-1, list)
		r.free.draw = rand.New(rand.NewPCG(seed, 1)).IntN
		list[0].(*seat).setModels(r, "a")
		list[1].(*seat).setModels(r, "a", "b")
		if _, got := mustGet(t, r, "z"); got != "r2" && got != "r3" {
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
				list := seats(1, 1)
				r := seatedRouter(-1, list)
				list[0].(*seat).setModels(r, "a")
				m := mustAcquire(t, r)
				var waiters []*waiter
				for _, model := range c.queue {
					waiters = append(waiters, queue(r, model))
				}
				time.Sleep(c.waited)
				r.release(m, "")
				got := slices.IndexFunc(waiters, func(w *waiter) bool { return len(w.granted) == 1 })
				if got != c.want {
					t.Errorf("the slot went to %d, want %d", got, c.want)
				}
			})
		})
	}
}

// TestNewReplicaServesTheFirst: what waits gets a replica that appears, in order.
func TestNewReplicaServesTheFirst(t *testing.T) {
	r := seatedRouter(-1, nil)
	waiters := []*waiter{queue(r, "a"), queue(r, ""), queue(r, "a")}
	r.update(seats(2, 1))
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
	list := seats(2, 1)
	r := seatedRouter(-1, list)
	m := mustAcquire(t, r)
	mustAcquire(t, r)
	w := []*waiter{queue(r, ""), queue(r, "")}
	list[0].(*seat).max = 1
	r.update(list)
	r.release(m, "")
	if len(w[0].granted) != 0 {
		t.Error("a slot was granted beyond the lower limit")
	}
	list[0].(*seat).max = 3
	r.update(list)
	if len(w[0].granted) != 1 || len(w[1].granted) != 1 || m.ongoing != 3 || len(r.free.members) != 0 {
		t.Errorf("after the higher limit: granted %d %d, ongoing %d, free %d; want 1 1, 3, 0",
			len(w[0].granted), len(w[1].granted), m.ongoing, len(r.free.members))
	}
	r.limitQueue(0)
	if _, _, err := r.acquire(t.Context(), ""); !isRefusal(err) {
		t.Errorf("beyond the lower limit of the queue: %v", err)
	}
}

// TestRemoved: a replica that is removed says when its last request is over.
func TestRemoved(t *testing.T) {
	list := seats(2, 2)
	r := seatedRouter(0, list[:1])
	m := mustAcquire(t, r)
	idle := r.remove(list[0])
	select {
	case <-idle:
		t.Error("idle with a request")
	default:
	}
	if _, _, err := r.acquire(t.Context(), ""); !isRefusal(err) {
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
		r := seatedRouter(-1, nil)
		want := &DeploymentUnavailableError{App: "a", Deployment: "D"}
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
		r.update(seats(1, 1))
		m := mustAcquire(t, r)
		r.mu.Lock() // refused while the deployment fails
		r.down = want
		r.mu.Unlock()
		w := newWaiter("", 1)
		if r.again(w, m) != nil || <-w.granted != nil || w.err != want {
			t.Errorf("the one that was refused: %v", w.err)
		}
	})
}

// TestRouterKeepsItsBooks does at random what can be done to a router, from one
// goroutine and with given seeds, and holds after each step: no member runs more
// than its limit but where that was lowered, free has those with a slot and no
// others, nobody waits beside a free slot, those that wait are in the order of
// their arrival, and all that was granted is counted, with its model.
func TestRouterKeepsItsBooks(t *testing.T) {
	for seed := range uint64(200) {
		b := &books{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 7))}
		b.router = newRouter(t.Context(), "D", -1)
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

type books struct {
	t       *testing.T
	seed    uint64
	rand    *rand.Rand
	router  *router
	listed  []runner
	names   int
	waiters []*waiter
	held    []heldSlot
}

type heldSlot struct {
	m     *member
	model string
}

func (b *books) model() string { return []string{"", "", "a", "b", "c"}[b.rand.IntN(5)] }

// step does one thing, as acquire and await would, without their waiting.
func (b *books) step() {
	r := b.router
	switch b.rand.IntN(9) {
	case 0, 1, 2:
		r.mu.Lock()
		r.arrivals++
		w := newWaiter(b.model(), r.arrivals)
		if m := r.free.pick(w.model); m != nil {
			r.takeLocked(m, w.model)
			w.granted <- m
		} else {
			w.place = r.waiting.PushBack(w)
		}
		r.mu.Unlock()
		b.waiters = append(b.waiters, w)
	case 3, 4:
		if i := b.rand.IntN(len(b.held) + 1); i < len(b.held) {
			r.release(b.held[i].m, b.held[i].model)
			b.held = slices.Delete(b.held, i, i+1)
		}
	case 5:
		if i := b.rand.IntN(len(b.waiters) + 1); i < len(b.waiters) {
			r.giveUp(b.waiters[i])
			b.waiters = slices.Delete(b.waiters, i, i+1)
		}
	case 6: // a replica comes, or its limit changes
		if i := b.rand.IntN(4); i < len(b.listed) {
			b.listed[i].(*seat).max = 1 + b.rand.IntN(3)
		} else {
			b.names++
			b.listed = append(b.listed, &seat{name: fmt.Sprint(b.names), max: 1 + b.rand.IntN(3)})
		}
		r.update(b.listed)
	case 7:
		if i := b.rand.IntN(len(b.listed) + 3); i < len(b.listed) {
			b.listed[i].(*seat).refuses.Store(true)
			r.remove(b.listed[i])
			b.listed = slices.Delete(b.listed, i, i+1)
		}
	case 8:
		if len(b.listed) > 0 {
			b.listed[b.rand.IntN(len(b.listed))].(*seat).setModels(r, b.model(), "x")
		}
	}
	b.accept()
}

// accept lets those that were granted a slot run, unless they are refused.
func (b *books) accept() {
	for i := 0; i < len(b.waiters); i++ {
		w := b.waiters[i]
		var m *member
		select {
		case m = <-w.granted:
		default:
			continue
		}
		for m != nil && !m.runner.accept() {
			m = b.router.again(w, m)
		}
		if m != nil {
			b.held = append(b.held, heldSlot{m, w.model})
			b.waiters = slices.Delete(b.waiters, i, i+1)
			i--
		}
	}
}

func (b *books) check() {
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
			b.t.Errorf("seed %d: %v counts %d requests, %d with a model; %d and %d run", b.seed, m.runner.id().UniqueID, m.ongoing, withModel, slots[m], models[m])
		}
		if free := m.ongoing < m.limit; free != (m.at >= 0) || free != slices.Contains(r.free.members, m) {
			b.t.Errorf("seed %d: %v has %d of %d, its place is %d", b.seed, m.runner.id().UniqueID, m.ongoing, m.limit, m.at)
		}
	}
	if r.waiting.Len() > 0 && len(r.free.members) > 0 {
		b.t.Errorf("seed %d: %d wait beside a free slot", b.seed, r.waiting.Len())
	}
	if r.waiting.Len() != len(b.waiters) {
		b.t.Errorf("seed %d: %d in the queue, %d wait", b.seed, r.waiting.Len(), len(b.waiters))
	}
	last := uint64(0)
	for at := r.waiting.Front(); at != nil; at = at.Next() {
		if n := at.Value.(*waiter).arrival; n <= last {
			b.t.Errorf("seed %d: %d waits behind %d", b.seed, n, last)
		} else {
			last = n
		}
	}
}

// TestQueueLimitConcurrentSafe: of many that come at once, as many wait as may, and all
// others are turned away.
func TestQueueLimitConcurrentSafe(t *testing.T) {
	const limit, crowd = 7, 40
	r := seatedRouter(limit, seats(1, 1))
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
		want := &QueueFullError{Deployment: "D", Queued: limit, Limit: limit}
		if diff := cmp.Diff(want, receive(t, "a refusal", refused)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	await(t, "the rest to wait", func() bool { return queuedAt(r) == limit })
	cancel()
	wg.Wait()
	r.release(m, "")
	if len(refused) > 0 || queuedAt(r) != 0 || len(r.free.members) != 1 {
		t.Errorf("%d more were refused, %d wait, %d free", len(refused), queuedAt(r), len(r.free.members))
	}
}

// queuedAt returns how many requests wait for a slot.
func queuedAt(r *router) int {
	queued, _ := r.load()
	return queued
}
