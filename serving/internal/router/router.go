package router

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// router chooses a replica for each request of one deployment. It draws two replicas with a
// free slot at random, and takes the replica that runs fewer requests. If no slot is free,
// requests wait in the order of their arrival, and the next free slot goes to the first
// request.
//
// A request for a multiplexed model goes to a replica that holds the model, chosen in the
// same way. If no such replica has a free slot, the request goes to a replica with the fewest
// models, which then loads the model.
//
// The replicas are the members of the router. A process of other replicas is a member, too
// (pool.go). The router counts the running requests of each member itself. For a replica, the
// number is exact, because all its requests pass through this router. For another process it
// is not, see trust in peer.go.
type router struct {
	base context.Context // ends, with a cause, when requests must not wait any longer

	mu        sync.Mutex
	ongoing   int                  // number of requests that have a slot
	limit     int                  // largest number of requests that a replica runs at a time
	maxQueued int                  // largest number of waiting requests; -1 means no limit
	full      cause.QueueFullError // the error if the queue is full; Queued and Limit are set in a copy
	free      pool                 // the members that have a free slot
	waiting   list.List            // the waiting requests, as *waiter, oldest first; empty if a slot is free
	down      error                // the error of all requests while the deployment is unavailable; otherwise nil
	members   map[*Replica]*member // the members that are replicas of this process
	watchers  watchers             // informed of changes of the replicas
}

// waiter is a request that waits for a slot.
type waiter struct {
	model string    // id of the multiplexed model, or ""
	since time.Time // arrival of the request, which determines its place in the queue
	// granted receives one value: the member that has a slot for the request, or nil if the
	// wait has failed. It is buffered, so that the sender never blocks.
	granted chan *member
	err     error // reason for which the wait has failed; set before nil is sent to granted
}

func newRouter(base context.Context, limit, maxQueued int, full cause.QueueFullError) *router {
	return &router{
		base:      base,
		limit:     limit,
		maxQueued: maxQueued,
		full:      full,
		free:      pool{draw: rand.IntN},
		members:   map[*Replica]*member{},
	}
}

// acquire reserves a slot of a member for a request. If no slot is free, it waits, and wait
// is the duration. model is the id of the request's multiplexed model, or "". The caller must
// free the slot with release.
//
// The error is a *cause.QueueFullError or a *cause.DeploymentUnavailableError. If ctx or the
// server ends while the request waits, the error is the cause of that end.
func (r *router) acquire(ctx context.Context, model string) (m *member, wait time.Duration, err error) {
	return r.acquireSince(ctx, model, time.Time{})
}

// acquireSince is acquire for a request that may have had a slot before. since is the time
// of its arrival, or zero for a new request. A request that a process has refused passes the
// time of its arrival. It is queued before requests that arrived later, even in a full queue.
func (r *router) acquireSince(ctx context.Context, model string, since time.Time) (m *member, wait time.Duration, err error) {
	r.mu.Lock()
	if m, err = r.takeFreeLocked(model, since.IsZero()); m != nil || err != nil {
		r.mu.Unlock()
		return m, 0, err
	}
	began := time.Now()
	w := &waiter{model: model, since: since, granted: make(chan *member, 1)}
	if since.IsZero() {
		w.since = began
	}
	place := r.queueLocked(w)
	r.mu.Unlock()
	select {
	case m = <-w.granted:
		if err = w.err; m != nil && r.base.Err() != nil { // the server cuts requests off, which has freed this slot
			r.release(m, model)
			err = context.Cause(r.base)
		}
	case <-ctx.Done():
		r.giveUp(w, place)
		err = context.Cause(ctx)
	case <-r.base.Done():
		r.giveUp(w, place)
		err = context.Cause(r.base)
	}
	if err != nil {
		m = nil
	}
	return m, time.Since(began), err
}

// takeFreeLocked takes a free slot for a request. If no slot is free and the request may
// wait, both results are nil. isNew reports a request that has had no slot before. Only a
// new request fails if the queue is full.
func (r *router) takeFreeLocked(model string, isNew bool) (*member, error) {
	if r.down != nil {
		return nil, r.down
	}
	if m := r.free.pick(model); m != nil {
		r.takeLocked(m, model)
		return m, nil
	}
	if queued := r.waiting.Len(); isNew && r.maxQueued >= 0 && queued >= r.maxQueued {
		full := r.full
		full.Queued, full.Limit = queued, r.maxQueued
		return nil, &full
	}
	return nil, nil
}

// takeLocked gives a slot of m to a request. m must have a free slot.
func (r *router) takeLocked(m *member, model string) {
	r.ongoing++
	m.take(model)
	if m.ongoing >= m.limit {
		r.free.drop(m)
	}
}

// queueLocked inserts w into the queue, after all waiters that arrived before it.
func (r *router) queueLocked(w *waiter) *list.Element {
	for at := r.waiting.Back(); at != nil; at = at.Prev() {
		if !at.Value.(*waiter).since.After(w.since) {
			return r.waiting.InsertAfter(w, at)
		}
	}
	return r.waiting.PushFront(w)
}

// giveUp removes the waiter w from its place in the queue. If w has got a slot meanwhile,
// giveUp frees the slot.
func (r *router) giveUp(w *waiter, place *list.Element) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case m := <-w.granted:
		if m != nil {
			r.releaseLocked(m, w.model)
		}
	default:
		r.waiting.Remove(place)
	}
}

// release frees the slot of a request for model. If requests wait, one of them gets the
// slot.
func (r *router) release(m *member, model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked(m, model)
}

// releaseLocked frees a slot of m. If requests wait, one of them gets the slot.
func (r *router) releaseLocked(m *member, model string) {
	r.ongoing--
	m.release(model)
	switch {
	case m.idle != nil:
		m.checkIdle()
	case !m.open(): // the limit was lowered, so that m still has no free slot
	case r.waiting.Len() > 0:
		r.grantLocked(m, r.nextLocked(m))
	default:
		r.free.add(m)
	}
}

// The bounds for nextLocked. In Ray, a request for a model first waits 1 to 2 s for a replica
// that holds the model, because Ray's routers learn late which replica holds it. This router
// knows it at once, because it counts a model as held from the moment at which it sends the
// first request for it. So no slot stays empty while a request waits. Ray's waiting time has a
// counterpart only in the order of the queue.
//
// matchWindow is the time after which no other request may overtake a waiting request, as in
// Ray. matchDepth is the largest number of waiters that nextLocked looks at.
const (
	matchWindow = time.Second
	matchDepth  = 100
)

// nextLocked returns the waiter that gets a free slot of m. This is usually the first
// waiter. But if m does not hold the model of the first waiter, a later waiter whose model m
// holds may overtake it, as in Ray. This saves the load of a model, and often the unloading of
// another model. A request that has waited for matchWindow is not overtaken, and neither is a
// request without a model.
func (r *router) nextLocked(m *member) *list.Element {
	first := r.waiting.Front()
	if w := first.Value.(*waiter); w.model == "" || m.holds(w.model) || time.Since(w.since) >= matchWindow {
		return first
	}
	at := first
	for range matchDepth {
		at = at.Next()
		if at == nil || at.Value.(*waiter).model == "" {
			return first
		}
		if m.holds(at.Value.(*waiter).model) {
			return at
		}
	}
	return first
}

// grantLocked removes the waiter at place from the queue, and gives it a slot of m.
func (r *router) grantLocked(m *member, place *list.Element) {
	w := r.waiting.Remove(place).(*waiter)
	r.takeLocked(m, w.model)
	w.granted <- m
}

// add adds a replica as a member. Waiting requests get its slots.
func (r *router) add(replica *Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &member{replica: replica, limit: r.limit, at: -1, models: replica.models()}
	r.members[replica] = m
	r.free.add(m)
	r.serveLocked()
	r.watchers.wake()
}

// remove removes a replica from the members. The requests that it runs continue. idle is
// closed when the last of these requests has ended.
func (r *router) remove(replica *Replica) (idle <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	m := r.members[replica]
	if m == nil {
		close(done)
		return done
	}
	delete(r.members, replica)
	m.idle = done
	r.free.drop(m)
	m.checkIdle()
	r.watchers.wake()
	return done
}

// limits sets the largest number of requests that a replica runs at a time, and the largest
// number of requests that may wait; -1 means any number. Requests that exceed the new limits
// are not cancelled.
func (r *router) limits(ongoing, queued int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit, r.maxQueued = ongoing, queued
	for _, m := range r.members {
		m.limit = r.limit
		r.free.update(m)
	}
	r.serveLocked()
	r.watchers.wake()
}

// serveLocked gives free slots to waiting requests, in their order.
func (r *router) serveLocked() {
	for r.waiting.Len() > 0 {
		first := r.waiting.Front()
		m := r.free.pick(first.Value.(*waiter).model)
		if m == nil {
			return
		}
		r.grantLocked(m, first)
	}
}

// fail makes all requests fail with err, including waiting requests. After fail(nil),
// requests are accepted again.
func (r *router) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
	r.watchers.wake()
	for err != nil && r.waiting.Len() > 0 {
		w := r.waiting.Remove(r.waiting.Front()).(*waiter)
		w.err = err
		w.granted <- nil
	}
}

// announce updates the models of a replica's member. The replica calls it after a change.
func (r *router) announce(replica *Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[replica]; m != nil {
		m.models = replica.models()
		r.watchers.wake()
	}
}

// load returns the number of requests that wait for a slot, and the number of requests that
// have a slot.
func (r *router) load() (queued, ongoing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting.Len(), r.ongoing
}
