package serving

import (
	"container/list"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// runner runs requests: one replica, wherever it lives. Its methods are safe for
// concurrent use.
type runner interface {
	// id names the replica for good.
	id() ReplicaID
	// limit is how many requests it runs at a time, 1 or more. Where it changes,
	// the router is told by update.
	limit() int
	// models are the ids of the multiplexed models that it holds or loads, for
	// the router to read only. Where they change, the router is told by announce.
	models() []string
	// accept takes a call on, or refuses it because the replica is to stop:
	// it then accepts no other. Whoever has it accept a call has it run one.
	accept() bool
	// cut is closed when the replica can wait for its requests no longer: who has
	// one there from a client gives it up.
	cut() <-chan struct{}
	// run runs the user's code for c and returns when that has really returned,
	// however late that is. The error says what ended the call otherwise than
	// by an ordinary response: what the user's code returned, a *PanicError, or
	// why the context ended.
	run(ctx context.Context, c call) error
}

// router chooses replicas for one deployment's requests. Of two replicas drawn
// at random among those with a free slot it takes the less loaded one. With no
// slot free, requests wait in the order in which they came, and the slot that
// frees goes to the first of them: no polling, no overtaking.
//
// A request for a multiplexed model goes to the less loaded of two replicas that
// hold the model; if none of these has a free slot, to one with the fewest
// models, to be loaded there.
//
// Ray has such a request wait for a holder for 1 to 2 s first. It has to: its
// routers hear of models 0.1 s late and of loads by asking, so that for a while
// they know of no holder though there is one. This router knows both at any
// time, and a model counts as held from the moment in which the first request
// for it is sent. So a slot never stands empty beside a request that waits. What
// is left of Ray's window is its use in a queue: see nextLocked.
//
// The router counts each replica's requests itself. That count is exact while
// every request to the deployment passes through this router, as it does within
// one process; so a replica refuses a request only if it is to stop.
type router struct {
	server     context.Context // ends when requests must not wait any longer, with the cause
	deployment string

	mu        sync.Mutex
	arrivals  uint64    // requests so far
	ongoing   int       // requests that have a slot
	maxQueued int       // -1: no limit
	free      pool      // the members with a slot left
	waiting   list.List // of *waiter, first come first; empty while free is not
	down      error     // why there will be no replica; nil while there may be
	members   []*member
}

// member is a replica as the router sees it. The router's mu guards it.
type member struct {
	runner  runner
	limit   int
	ongoing int
	at      int           // its place in the pool of free members; -1 while it is not there
	gone    bool          // no longer listed, or it refused one: takes no more requests
	idle    chan struct{} // closed when it has no request any more; nil if not waited for
	models  []string      // as announced; never written to
	sent    []sent        // models that requests were sent to it for, and still run
}

// sent counts a member's ongoing requests for one model.
type sent struct {
	model   string
	ongoing int
}

// waiter is a request that waits for a slot.
type waiter struct {
	model   string
	arrival uint64    // its number among all requests
	since   time.Time // when it began to wait
	// granted has room for the one member it will ever carry, so that the
	// grant never blocks. A waiter off the list has its member on the way. Nil
	// is carried where there will be none, for err, which was set before.
	granted chan *member
	err     error
	place   *list.Element // on the list
}

func newRouter(server context.Context, deployment string, maxQueued int) *router {
	return &router{server: server, deployment: deployment, maxQueued: maxQueued, free: pool{draw: rand.IntN}}
}

// acquire reserves a slot of a replica that has accepted the request, waiting
// for one if need be; wait is how long that took. model is the multiplexed model
// that the request is for; empty for none. The caller gives the slot back with
// release. It fails with a *QueueFullError at once, with a
// *DeploymentUnavailableError at once or later, or with the cause of ctx's end, or of
// the server's end, if the request waits then.
func (r *router) acquire(ctx context.Context, model string) (m *member, wait time.Duration, err error) {
	r.mu.Lock()
	if r.down != nil {
		r.mu.Unlock()
		return nil, 0, r.down
	}
	r.arrivals++
	arrival := r.arrivals
	if m = r.free.pick(model); m != nil {
		r.takeLocked(m, model)
		r.mu.Unlock()
		if m.runner.accept() {
			return m, 0, nil
		}
		return r.await(ctx, newWaiter(model, arrival), m)
	}
	if queued := r.waiting.Len(); r.maxQueued >= 0 && queued >= r.maxQueued {
		r.mu.Unlock()
		return nil, 0, &QueueFullError{Deployment: r.deployment, Queued: queued, Limit: r.maxQueued}
	}
	w := newWaiter(model, arrival)
	w.place = r.waiting.PushBack(w)
	r.mu.Unlock()
	return r.await(ctx, w, nil)
}

func newWaiter(model string, arrival uint64) *waiter {
	return &waiter{model: model, arrival: arrival, since: time.Now(), granted: make(chan *member, 1)}
}

// await waits for a slot of a replica that accepts w. refused has refused it
// already; nil for none.
func (r *router) await(ctx context.Context, w *waiter, refused *member) (m *member, wait time.Duration, err error) {
	for {
		m = nil
		if refused != nil {
			m = r.again(w, refused)
		}
		if m == nil {
			select {
			case m = <-w.granted:
			case <-ctx.Done():
				r.giveUp(w)
				return nil, time.Since(w.since), context.Cause(ctx)
			case <-r.server.Done():
				r.giveUp(w)
				return nil, time.Since(w.since), context.Cause(r.server)
			}
		}
		if m == nil {
			return nil, time.Since(w.since), w.err
		}
		if r.server.Err() != nil { // the slot is free because its request was cut off
			r.release(m, w.model)
			return nil, time.Since(w.since), context.Cause(r.server)
		}
		if m.runner.accept() {
			return m, time.Since(w.since), nil
		}
		refused = m
	}
}

// again takes back the slot of a replica that refused w, which gets no more
// until it is listed anew. It gives another member for w, or nil: w then waits
// in the place that its arrival gives it, which is before all that came later.
// It has been let in, so that no limit of the queue holds it up.
func (r *router) again(w *waiter, refused *member) *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused.gone = true
	r.free.drop(refused)
	r.releaseLocked(refused, w.model)
	if r.down != nil {
		w.err = r.down
		w.granted <- nil
		return nil
	}
	if m := r.free.pick(w.model); m != nil {
		r.takeLocked(m, w.model)
		return m
	}
	at := r.waiting.Front()
	for at != nil && at.Value.(*waiter).arrival < w.arrival {
		at = at.Next()
	}
	if at == nil {
		w.place = r.waiting.PushBack(w)
	} else {
		w.place = r.waiting.InsertBefore(w, at)
	}
	return nil
}

// giveUp takes a waiter off the list. If a slot was granted to it meanwhile,
// the slot goes on to the next.
func (r *router) giveUp(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case m := <-w.granted:
		if m != nil {
			r.releaseLocked(m, w.model)
		}
	default:
		r.waiting.Remove(w.place)
	}
}

// release gives a slot back that a request for model had, to a waiter if there
// is one.
func (r *router) release(m *member, model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked(m, model)
}

// update makes runners the deployment's replicas. Those that are no longer
// listed finish what they run; waiters go to those that are new. With remove it
// is the seam "who lists replicas".
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
		}
		m.gone, m.limit, m.models = false, run.limit(), run.models()
		if m.ongoing < m.limit {
			r.free.add(m)
		} else {
			r.free.drop(m) // it may have had a higher limit
		}
		members = append(members, m)
	}
	for _, m := range known {
		m.gone = true
		r.free.drop(m)
	}
	r.members = members
	r.serveLocked()
}

// remove takes run off the list at once; idle is closed when the last request
// has given its slot of it back.
func (r *router) remove(run runner) (idle <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	i := r.indexLocked(run)
	if i < 0 {
		close(done)
		return done
	}
	m := r.members[i]
	r.members = slices.Delete(r.members, i, i+1)
	m.gone, m.idle = true, done
	r.free.drop(m)
	m.checkIdle()
	return done
}

// indexLocked returns the place of run among the members, -1 for none.
func (r *router) indexLocked(run runner) int {
	return slices.IndexFunc(r.members, func(m *member) bool { return m.runner == run })
}

// checkIdle closes idle in its time: a member that is gone gets no more requests.
func (m *member) checkIdle() {
	if m.idle != nil && m.ongoing == 0 {
		close(m.idle)
		m.idle = nil
	}
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

// limitQueue sets how many requests may wait; -1 for any number. Those that
// wait already may stay.
func (r *router) limitQueue(most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxQueued = most
}

// fail has all requests fail with err, those that wait too, until it is called
// with nil: there will be no replica.
func (r *router) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
	for err != nil && r.waiting.Len() > 0 {
		w := r.waiting.Remove(r.waiting.Front()).(*waiter)
		w.err = err
		w.granted <- nil
	}
}

// announce is called when a replica's models have changed.
func (r *router) announce(run runner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.indexLocked(run); i >= 0 {
		r.members[i].models = run.models()
	}
}

// takeLocked counts one more request on m, which has a slot left.
func (r *router) takeLocked(m *member, model string) {
	m.ongoing++
	r.ongoing++
	if m.ongoing >= m.limit {
		r.free.drop(m)
	}
	if model == "" {
		return
	}
	for i := range m.sent {
		if m.sent[i].model == model {
			m.sent[i].ongoing++
			return
		}
	}
	m.sent = append(m.sent, sent{model: model, ongoing: 1})
}

func (r *router) releaseLocked(m *member, model string) {
	m.ongoing--
	r.ongoing--
	if model != "" {
		i := slices.IndexFunc(m.sent, func(s sent) bool { return s.model == model })
		if m.sent[i].ongoing--; m.sent[i].ongoing == 0 {
			m.sent = slices.Delete(m.sent, i, i+1)
		}
	}
	switch {
	case m.gone:
		m.checkIdle()
	case m.ongoing >= m.limit: // the limit was lowered
	case r.waiting.Len() > 0:
		r.grantLocked(m, r.nextLocked(m))
	default:
		r.free.add(m)
	}
}

// The bounds on overtaking: for how long a request may be, which is the window
// that Ray has by default, and how far down the queue a match is looked for.
const (
	matchWindow = time.Second
	matchDepth  = 100
)

// nextLocked gives the waiter that a free slot of m is for: the first. If that
// one is for a model which m does not hold, the next goes first whose model m
// does hold, as in Ray: it saves the load of a model, and often the unloading of
// another. Nobody is passed over for longer than the window from when it began
// to wait, and a request without a model never is.
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

// grantLocked takes a slot of m for a waiter and hands it over.
func (r *router) grantLocked(m *member, place *list.Element) {
	w := r.waiting.Remove(place).(*waiter)
	r.takeLocked(m, w.model)
	w.granted <- m
}

// load returns how many requests wait for a slot, and how many have one.
func (r *router) load() (queued, ongoing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting.Len(), r.ongoing
}
