package router

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// router chooses replicas for one deployment's requests. It draws two replicas with a free
// slot at random, and takes the less loaded replica. If no slot is free, requests wait in
// the order of their arrival, and the next free slot goes to the first request.
//
// A request for a multiplexed model goes to the less loaded of two replicas that hold the
// model. If none of these has a free slot, it goes to a replica with the fewest models,
// and the model is loaded there.
//
// In Ray, such a request first waits 1 to 2 s for a replica with the model. Ray's routers
// need this time, because they learn of models and loads with a delay. This router has no
// such delay: a model counts as held from the moment at which the first request for it is
// sent. So no slot stays empty while a request waits. Only the queue has Ray's window:
// see nextLocked.
//
// The router counts the requests of its members itself. The count of a replica is exact,
// because all its requests pass through this router. For other processes see trust.
type router struct {
	base context.Context // ends, with a cause, when requests must not wait any longer

	mu        sync.Mutex
	ongoing   int                  // number of requests that have a slot
	limit     int                  // number of requests that a replica runs at a time
	maxQueued int                  // -1: no limit
	full      cause.QueueFullError // error for a full queue, without the numbers of requests
	free      pool                 // the members with a free slot
	waiting   list.List            // the values are *waiter, oldest first; empty unless free is empty
	down      error                // reason for which there will be no replica; nil if there may be one
	members   map[*Replica]*member // the replicas of this process
	watchers  watchers
}

// waiter is a request that waits for a slot.
type waiter struct {
	model string
	since time.Time // arrival of the request; waiters are in the order of their arrival
	// granted gets one value: the member, or nil if the wait failed. It is buffered, so
	// that the sender never blocks. err is set before the value is sent.
	granted chan *member
	err     error
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

// acquire reserves a slot of a replica, waiting for one if necessary; wait is how long
// that took. model is the multiplexed model that the request is for, or "". The caller
// frees the slot with release. It fails at once with a *cause.QueueFullError, and at once
// or later with a *cause.DeploymentUnavailableError. If ctx or the server ends while the
// request waits, it fails with the cause of that end.
func (r *router) acquire(ctx context.Context, model string) (m *member, wait time.Duration, err error) {
	return r.acquireSince(ctx, model, time.Time{})
}

// acquireSince acquires a slot like acquire. since is zero for a new request. For a request
// that has lost its slot, since is the time of its arrival. Such a request goes before
// requests that arrived later, and may enter a full queue.
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
		if err = w.err; m != nil && r.base.Err() != nil { // the slot is free because another request was cut off
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

// queueLocked inserts w after the waiters that arrived before it.
func (r *router) queueLocked(w *waiter) *list.Element {
	for at := r.waiting.Back(); at != nil; at = at.Prev() {
		if !at.Value.(*waiter).since.After(w.since) {
			return r.waiting.InsertAfter(w, at)
		}
	}
	return r.waiting.PushFront(w)
}

// takeFreeLocked takes a free slot for a request. If both results are nil, the request may
// wait. The bound of the queue applies to new requests only.
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

// giveUp removes a waiter from the list. If it got a slot in the meantime, the slot
// goes to the next waiter.
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

// add adds a replica to the list. Waiting requests get its slots.
func (r *router) add(replica *Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &member{replica: replica, limit: r.limit, at: -1, models: replica.models()}
	r.members[replica] = m
	r.free.add(m)
	r.serveLocked()
	r.watchers.wake()
}

// remove removes a replica from the list. Its requests continue. idle is closed when its
// last request has ended.
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

// limits sets the number of requests that a replica runs at a time, and the number of
// requests that may wait (-1: any number). Requests above the new limits stay.
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

// announce reads a replica's models, which have changed.
func (r *router) announce(replica *Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[replica]; m != nil {
		m.models = replica.models()
		r.watchers.wake()
	}
}

// takeLocked counts one more request on m, which has a free slot.
func (r *router) takeLocked(m *member, model string) {
	r.ongoing++
	m.take(model)
	if m.ongoing >= m.limit {
		r.free.drop(m)
	}
}

func (r *router) releaseLocked(m *member, model string) {
	r.ongoing--
	m.release(model)
	switch {
	case m.idle != nil:
		m.checkIdle()
	case !m.open(): // the limit was lowered
	case r.waiting.Len() > 0:
		r.grantLocked(m, r.nextLocked(m))
	default:
		r.free.add(m)
	}
}

// Bounds on overtaking. matchWindow is the time in which a request may be overtaken,
// Ray's default window. matchDepth is the number of waiters that are searched.
const (
	matchWindow = time.Second
	matchDepth  = 100
)

// nextLocked returns the waiter that gets a free slot of m. This is usually the first
// waiter. If m does not hold the model of the first waiter, the next waiter for a model of
// m goes first, as in Ray. This saves a load of the model, and often the unloading of
// another model. No waiter is overtaken after it has waited for the window. A request
// without a model is never overtaken.
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

// grantLocked takes a slot of m for a waiter and passes it on.
func (r *router) grantLocked(m *member, place *list.Element) {
	w := r.waiting.Remove(place).(*waiter)
	r.takeLocked(m, w.model)
	w.granted <- m
}

// load returns the number of requests that wait for a slot, and the number of requests that
// have a slot.
func (r *router) load() (queued, ongoing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting.Len(), r.ongoing
}
