package serving

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// runner is the seam "who runs one": one replica, wherever it lives. Its
// methods are safe for concurrent use.
type runner interface {
	// id names the replica for good.
	id() ReplicaID
	// limit is how many requests it runs at a time, 1 or more, always the same.
	limit() int
	// accept takes a call on, or refuses it because the replica is to stop:
	// it then accepts no other. Whoever has it accept a call has it run one.
	accept() bool
	// run runs the user's code for c and returns when that has really returned,
	// however late that is. The error says what ended the call otherwise than
	// by an ordinary response: what the user's code returned, a *PanicError, or
	// why the context ended.
	run(ctx context.Context, c call) error
}

// lister is the seam "who lists replicas".
type lister interface {
	// watch calls update with the whole list, at once and after every change,
	// never concurrently, until stop returns.
	watch(update func([]runner)) (stop func())
}

// router chooses replicas for one deployment's requests. Of two replicas drawn
// at random among those with a free slot it takes the less loaded one. With no
// slot free, requests wait in the order in which they came, and the slot that
// frees goes to the first of them: nobody polls, nobody overtakes.
//
// The router counts each replica's requests itself. That count is exact while
// every request to the deployment passes through this router, as it does within
// one process; so a replica refuses a request only where it is to stop.
type router struct {
	deployment string
	maxQueued  int             // -1: no limit
	draw       func(n int) int // uniform in [0, n); rand.IntN but in tests

	mu      sync.Mutex
	members []*member
	free    []*member // those with a slot left, in no order
	waiting list.List // of *waiter, first come first; empty while free is not
}

// member is a replica as the router sees it. The router's mu guards it.
type member struct {
	runner  runner
	ongoing int
	at      int  // its place in router.free; -1 while it is not there
	gone    bool // no longer listed, or it refused one: takes no more requests
}

// waiter is a request that waits for a slot.
type waiter struct {
	// granted has room for the one member it will ever carry, so that the
	// grant never blocks. A waiter off the list has its member on the way.
	granted chan *member
}

func newWaiter() *waiter { return &waiter{granted: make(chan *member, 1)} }

func newRouter(deployment string, maxQueued int) *router {
	return &router{deployment: deployment, maxQueued: maxQueued, draw: rand.IntN}
}

// acquire reserves a slot of a replica, waiting for one if need be; wait is how
// long that took. The caller gives the slot back with release. It fails with a
// *QueueFullError at once, or with ctx's cause when ctx ends first.
func (r *router) acquire(ctx context.Context) (m *member, wait time.Duration, err error) {
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	r.mu.Lock()
	if m := r.pickLocked(); m != nil {
		r.takeLocked(m)
		r.mu.Unlock()
		return m, 0, nil
	}
	if queued := r.waiting.Len(); r.maxQueued >= 0 && queued >= r.maxQueued {
		r.mu.Unlock()
		return nil, 0, &QueueFullError{Deployment: r.deployment, Queued: queued, Limit: r.maxQueued}
	}
	w := newWaiter()
	place := r.waiting.PushBack(w)
	r.mu.Unlock()
	return r.await(ctx, w, place)
}

// again is for a request whose slot is in a replica that refused it: it reserves
// another as acquire does. The request has had its turn, so that it waits before
// all others, and no limit of the queue holds it up. The replica gets no more.
func (r *router) again(ctx context.Context, refused *member) (m *member, wait time.Duration, err error) {
	r.mu.Lock()
	refused.gone = true
	r.dropFreeLocked(refused)
	r.releaseLocked(refused)
	if m := r.pickLocked(); m != nil {
		r.takeLocked(m)
		r.mu.Unlock()
		return m, 0, nil
	}
	w := newWaiter()
	place := r.waiting.PushFront(w)
	r.mu.Unlock()
	return r.await(ctx, w, place)
}

// await waits for the slot of w, which is in its place on the list.
func (r *router) await(ctx context.Context, w *waiter, place *list.Element) (m *member, wait time.Duration, err error) {
	since := time.Now()
	select {
	case m := <-w.granted:
		return m, time.Since(since), nil
	case <-ctx.Done():
		r.giveUp(place)
		return nil, time.Since(since), context.Cause(ctx)
	}
}

// giveUp takes a waiter off the list. If a slot was granted to it meanwhile,
// the slot goes on to the next.
func (r *router) giveUp(place *list.Element) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case m := <-place.Value.(*waiter).granted:
		r.releaseLocked(m)
	default:
		r.waiting.Remove(place)
	}
}

// release gives a slot back, to the first waiter if there is one.
func (r *router) release(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked(m)
}

// update makes runners the deployment's replicas. Those that are no longer
// listed finish what they run; waiters go to those that are new.
func (r *router) update(runners []runner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[runner]*member, len(r.members))
	for _, m := range r.members {
		known[m.runner] = m
	}
	members := make([]*member, 0, len(runners))
	for _, run := range runners {
		m, old := known[run]
		delete(known, run)
		if !old {
			m = &member{runner: run, at: -1}
			r.offerLocked(m)
		}
		members = append(members, m)
	}
	for _, m := range known {
		m.gone = true
		r.dropFreeLocked(m)
	}
	r.members = members
	for r.waiting.Len() > 0 {
		m := r.pickLocked()
		if m == nil {
			return
		}
		r.takeLocked(m)
		r.grantLocked(m)
	}
}

// pickLocked chooses a member with a free slot, or nil.
func (r *router) pickLocked() *member {
	n := len(r.free)
	if n <= 1 {
		if n == 0 {
			return nil
		}
		return r.free[0]
	}
	i := r.draw(n)
	j := r.draw(n - 1) // among the others
	if j >= i {
		j++
	}
	if r.free[j].ongoing < r.free[i].ongoing {
		return r.free[j]
	}
	return r.free[i]
}

// takeLocked counts one more request on m, which has a slot left.
func (r *router) takeLocked(m *member) {
	m.ongoing++
	if m.ongoing >= m.runner.limit() {
		r.dropFreeLocked(m)
	}
}

func (r *router) releaseLocked(m *member) {
	if !m.gone && r.waiting.Len() > 0 {
		r.grantLocked(m) // the slot passes from hand to hand: ongoing stays
		return
	}
	m.ongoing--
	if !m.gone {
		r.offerLocked(m)
	}
}

// grantLocked hands a slot of m, already counted, to the first waiter.
func (r *router) grantLocked(m *member) {
	first := r.waiting.Remove(r.waiting.Front()).(*waiter)
	first.granted <- m
}

func (r *router) offerLocked(m *member) {
	if m.at < 0 {
		m.at = len(r.free)
		r.free = append(r.free, m)
	}
}

func (r *router) dropFreeLocked(m *member) {
	if m.at < 0 {
		return
	}
	last := len(r.free) - 1
	r.free[m.at] = r.free[last]
	r.free[m.at].at = m.at
	r.free[last] = nil
	r.free = r.free[:last]
	m.at = -1
}

// queued is how many requests wait for a slot.
func (r *router) queued() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting.Len()
}
