package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
)

// Peer is another process that runs replicas of a deployment.
type Peer interface {
	// Offer asks the process to run a call for the request and the trace of ctx. It
	// returns when the process has accepted the call. A *RefusedError means that the
	// process has not run any of it, so that the call may go elsewhere. Any other error
	// ends the call.
	Offer(ctx context.Context, o Offer) (AcceptedCall, error)
}

// Offer describes a call for a process.
type Offer struct {
	Method, ModelID, Codec string
	Streaming              bool
	// Early reports that Value is the argument and is sent with the offer. The call may
	// then have run although the offer failed. Without Early, the process cannot run the
	// call before the caller sends the argument.
	Early bool
	Value []byte
}

// AcceptedCall is a call that a process has accepted.
type AcceptedCall interface {
	// Send sends the whole argument, or an item of it.
	Send(value []byte, whole bool) error
	// CloseSend ends an argument of items, with an error unless it is nil.
	CloseSend(err error) error
	// Recv returns the next result. It fails with io.EOF after the last result, or with
	// the error of the call.
	Recv() ([]byte, error)
	// Close ends the call, unless it has ended.
	Close()
}

// Refusal is a reason for which a process runs no part of a call.
type Refusal int

// The reasons.
const (
	// Unreached: the process has not answered.
	Unreached Refusal = iota
	// Full: all slots of its replicas are taken.
	Full
	// Stopping: the process takes no new calls.
	Stopping
)

// RefusedError is the error of an offer that a process has not accepted.
type RefusedError struct {
	Why Refusal
	Err error // details; may be nil
}

// Error implements error.
func (e *RefusedError) Error() string {
	why := [...]string{"no answer", "full", "stopping"}[e.Why]
	if e.Err == nil {
		return why
	}
	return fmt.Sprintf("%s: %v", why, e.Err)
}

// Unwrap returns the details.
func (e *RefusedError) Unwrap() error { return e.Err }

// trust bounds the number of requests that a router sends to a process. Several routers
// share the slots of a process, so a router learns from refusals how many slots it may
// use. After Full, limit falls to the number of running requests, and after another
// refusal to zero. It rises by one after each accepted request, and after each pause.
type trust struct {
	capacity int           // as reported by the process; limit is never higher
	probing  bool          // a pause runs
	pause    time.Duration // duration of the last pause; zero after an accepted request
}

// Bounds on the pauses. Ray's routers wait from 25 ms to 500 ms.
const (
	leastPause = 2 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// Membership is a process in the list of a deployment's router. Its methods are safe for
// concurrent use.
type Membership struct {
	router *router
	member *member
}

// Join adds a process to the list. It has no slots until SetState.
func (d *Deployment) Join(p Peer) *Membership {
	return &Membership{d.router, &member{peer: p, at: -1}}
}

// SetState sets how many requests the process runs at a time, and its models.
func (m *Membership) SetState(capacity int, models []string) {
	r := m.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.member.idle != nil {
		return
	}
	m.member.models = slices.Clone(models)
	m.member.capacity = capacity
	if !m.member.probing || m.member.limit > capacity {
		m.member.limit = capacity
	}
	m.updateLocked()
}

// updateLocked gives the free slots to waiting requests, or to the pool.
func (m *Membership) updateLocked() {
	m.router.free.update(m.member)
	m.router.serveLocked()
}

// Leave takes the process off the list. Its requests continue. idle is closed when the
// last request of the process has ended.
func (m *Membership) Leave() (idle <-chan struct{}) {
	r := m.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.member.idle == nil {
		m.member.idle = make(chan struct{})
		r.free.drop(m.member)
		m.member.checkIdle()
	}
	return m.member.idle
}

// Ongoing returns the number of requests of this router that the process has.
func (m *Membership) Ongoing() int {
	m.router.mu.Lock()
	defer m.router.mu.Unlock()
	return m.member.ongoing
}

// accepted records that the process has accepted a request.
func (m *Membership) accepted() {
	m.router.mu.Lock()
	defer m.router.mu.Unlock()
	m.member.pause = 0
	if m.member.idle == nil && m.member.limit < m.member.capacity {
		m.member.limit++
		m.updateLocked()
	}
}

// refused records that the process has refused a request for model, and frees its slot.
func (m *Membership) refused(why Refusal, model string) {
	r := m.router
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := 0
	if why == Full {
		limit = m.member.ongoing - 1
	}
	m.member.limit = min(m.member.limit, limit)
	r.free.update(m.member)
	r.releaseLocked(m.member, model)
	if m.member.probing || m.member.idle != nil {
		return
	}
	m.member.probing = true
	m.member.pause = min(max(2*m.member.pause, leastPause), mostPause)
	time.AfterFunc(m.member.pause, m.probe)
}

// probe ends a pause: the process may get one more request.
func (m *Membership) probe() {
	m.router.mu.Lock()
	defer m.router.mu.Unlock()
	m.member.probing = false
	if m.member.idle != nil {
		return
	}
	m.member.limit = min(m.member.capacity, max(m.member.limit, m.member.ongoing)+1)
	m.updateLocked()
}

// SetMaxQueued sets the number of requests that may wait. -1 means any number.
func (d *Deployment) SetMaxQueued(n int) {
	d.router.mu.Lock()
	defer d.router.mu.Unlock()
	d.router.maxQueued = n
}

// Queue returns the number of requests that wait for a slot, and the number of requests
// that have a slot.
func (d *Deployment) Queue() (queued, ongoing int) { return d.router.load() }

// Forward sends a call by handle to another process, which runs it. It offers the call to
// the processes of the deployment, one after another, until a process accepts it. A refused
// call keeps its place in the queue. Then Forward calls carry, which sends the argument and
// receives the results. The router span ends when a process has accepted the call. Forward
// sets App and Deployment of s.
//
// The error is an error of Assign, of the offer, or of carry.
func (d *Deployment) Forward(ctx context.Context, s spans.RouterStart, o Offer, carry func(AcceptedCall) error) error {
	s.App, s.Deployment = d.App, d.Name
	routed, span := d.shared.Tracer.StartRouter(ctx, s)
	var m *Membership
	var x AcceptedCall
	var wait time.Duration
	err := endBefore(ctx, s.Protocol)
	if err == nil {
		m, x, wait, err = d.place(routed, o)
	}
	d.routed(ctx, s.Protocol, span, wait, err)
	if err != nil {
		return err
	}
	defer d.router.release(m.member, o.ModelID) // even if the caller's code panics
	defer x.Close()
	return carry(x)
}

// place returns a process that has accepted the call.
func (d *Deployment) place(ctx context.Context, o Offer) (*Membership, AcceptedCall, time.Duration, error) {
	var arrived time.Time // zero in the first round
	var waited time.Duration
	for {
		m, wait, err := d.router.acquireSince(ctx, o.ModelID, arrived)
		waited += wait
		if err != nil {
			return nil, nil, waited, err
		}
		if arrived.IsZero() {
			arrived = time.Now().Add(-wait)
		}
		at := &Membership{d.router, m}
		x, err := m.peer.Offer(ctx, o)
		refused, again := errors.AsType[*RefusedError](err)
		switch {
		case err == nil:
			at.accepted()
			return at, x, waited, nil
		case again && context.Cause(ctx) == nil:
			at.refused(refused.Why, o.ModelID)
		default:
			d.router.release(m, o.ModelID)
			return nil, nil, waited, err
		}
	}
}
