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
	// Offer asks the process to run a call. It sends the request's identity and the trace
	// context of ctx, and returns when the process has accepted the call. A *RefusedError
	// means that the process runs no part of the call, so that another process may be asked.
	// After any other error, the call has failed.
	Offer(ctx context.Context, o Offer) (AcceptedCall, error)
}

// Offer describes a call to the process that is asked to run it.
type Offer struct {
	Method    string // name of the function; "" means __call__
	ModelID   string // id of the multiplexed model; "" for none
	Codec     string // name of the codec of argument and result
	Streaming bool   // the function returns a stream
	// Early reports that Value, the encoded argument, is sent with the offer. The process may
	// then run the call at once, so that the call may have run although Offer failed. If Early
	// is false, the process cannot run the call until the caller sends the argument.
	Early bool
	Value []byte
}

// AcceptedCall is a call that a process has accepted.
type AcceptedCall interface {
	// Send sends value. If whole is true, value is the argument. Otherwise the argument is a
	// stream, and value is its next item.
	Send(value []byte, whole bool) error
	// CloseSend ends an argument that is a stream. If err is not nil, the stream ends with
	// this error.
	CloseSend(err error) error
	// Recv returns the next result. After the last result it returns io.EOF. If the call has
	// failed, it returns the error of the call.
	Recv() ([]byte, error)
	// Close cancels the call, unless it has ended.
	Close()
}

// Refusal is a reason for which a process runs no part of a call.
type Refusal int

// The reasons of a Refusal.
const (
	// Unreached means that the process has not answered.
	Unreached Refusal = iota
	// Full means that all slots of the process's replicas are taken.
	Full
	// Stopping means that the process takes no new calls, because it stops.
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

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// trust bounds the number of requests that this router sends to a process at a time, which
// is member.limit. Other routers use the slots of the process, too, so a router learns from
// refusals how many slots it may use. After a refusal because of Full, the limit falls to the
// number of running requests. After any other refusal it falls to zero. It rises by one with
// each accepted request, and at the end of each pause.
type trust struct {
	capacity int           // number of slots that the process has reported; limit is never higher
	probing  bool          // a pause runs, which a refusal has started
	pause    time.Duration // duration of the last pause; zero after an accepted request
}

// Bounds on the pauses of trust. Ray's routers wait from 25 ms to 500 ms.
const (
	leastPause = 2 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// Membership is a process to which a deployment's router may send calls. Its methods are
// safe for concurrent use.
type Membership struct {
	router *router
	member *member
}

// Join adds the process p to the deployment. The router sends it no calls until SetState has
// set its number of slots.
func (d *Deployment) Join(p Peer) *Membership {
	return &Membership{d.router, &member{peer: p, at: -1}}
}

// SetState sets the number of calls that the process runs at a time, and the ids of the
// models that it holds.
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

// updateLocked gives the free slots of the process to waiting requests. If slots remain, the
// process is in the pool of free members.
func (m *Membership) updateLocked() {
	m.router.free.update(m.member)
	m.router.serveLocked()
}

// Leave removes the process from the deployment. The requests that it runs continue. idle is
// closed when the last of these requests has ended.
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

// Ongoing returns the number of this router's requests that the other process is handling.
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

// refused records that the process has refused a request for model, and frees the slot of
// the request. It starts a pause, unless one runs.
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

// probe ends a pause. From now on, the router may send the process one more request than it
// runs.
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

// Queue returns the number of requests that wait for a slot, queued, and the number of
// requests that have a slot, ongoing.
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
	d.endRouting(ctx, s.Protocol, span, wait, err)
	if err != nil {
		return err
	}
	defer d.router.release(m.member, o.ModelID) // even if the caller's code panics
	defer x.Close()
	return carry(x)
}

// place offers a call to one process after another, and returns the first process that has
// accepted it. It also returns the total time for which the call has waited for slots.
func (d *Deployment) place(ctx context.Context, o Offer) (*Membership, AcceptedCall, time.Duration, error) {
	var arrived time.Time // time at which the call entered the queue; zero before its first slot
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
