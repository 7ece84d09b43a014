// Package inflight counts the requests and handlers of a server that are under way. Its
// [Workers] run handlers on goroutines that are used again.
//
// The life of a [Counter]:
//
//  1. Requests are admitted from the beginning. Calls by handle are admitted after Start.
//  2. Leave makes the health checks report that the server is about to stop.
//  3. Drain refuses new requests. The channel of Idle is closed when no request and no
//     handler is under way.
//
// The package knows no protocol and ends no request. Open counter.go first.
package inflight

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// Counter counts requests and handlers. It counts a request and checks for a drain in one
// atomic step, so that no request is admitted after the drain has begun. Its methods are
// safe for concurrent use.
type Counter struct {
	idle chan struct{} // closed when the server drains and no request and no handler is under way

	// state has the counts of requests and handlers and the bits below. They are in one word,
	// so that one atomic operation can change a count and read the bits.
	state atomic.Uint64
}

// The parts of Counter.state. The lowest 30 bits count the requests in the proxies. The next
// 30 bits count the handlers, which may run longer than their requests.
const (
	oneRequest uint64 = 1
	oneHandler uint64 = 1 << 30
	begun      uint64 = 1 << 60 // Start was called
	leaving    uint64 = 1 << 61 // Leave was called
	draining   uint64 = 1 << 62 // Drain was called
	ended      uint64 = 1 << 63 // idle is closed, or about to be closed, so no call is admitted any more

	underWay = begun - 1 // the bits of both counts
)

// NewCounter returns a counter that admits requests. Calls by handle are refused until Start.
func NewCounter() *Counter {
	return &Counter{idle: make(chan struct{})}
}

// Admit counts a request and returns true. If the server drains, it returns false. If it
// returns true, RequestDone must follow.
func (c *Counter) Admit() bool {
	if c.state.Add(oneRequest)&draining != 0 {
		c.less(oneRequest)
		return false
	}
	return true
}

// RequestDone must be called at the end of each request that Admit has counted.
func (c *Counter) RequestDone() { c.less(oneRequest) }

var errNotStarted = errors.New("its server has not started: call Server.Start first")

// Start makes AdmitCall admit calls from now on.
func (c *Counter) Start() { c.state.Or(begun) }

// AdmitCall counts a call by handle as a handler. If it returns nil, HandlerDone must follow.
// inside reports that a handler makes the call. Such a call is admitted also before Start
// and during a drain, because its handler is counted itself. Other calls fail before Start,
// and with ErrShuttingDown during a drain.
func (c *Counter) AdmitCall(inside bool) error {
	s := c.state.Add(oneHandler)
	switch {
	case s&ended != 0, s&draining != 0 && !inside: // after ended, the handler that makes the call has returned
		c.less(oneHandler)
		return cause.ErrShuttingDown
	case s&begun == 0 && !inside:
		c.less(oneHandler)
		return errNotStarted
	}
	return nil
}

// HandlerStarts counts a handler. Call it only for an admitted request. HandlerDone must
// follow.
func (c *Counter) HandlerStarts() { c.state.Add(oneHandler) }

// HandlerDone must be called at the end of each handler or call that HandlerStarts or
// AdmitCall has counted.
func (c *Counter) HandlerDone() { c.less(oneHandler) }

// Leave makes Leaving return true from now on. Requests are still admitted, until Drain.
func (c *Counter) Leave() { c.state.Or(leaving) }

// Drain makes Admit refuse new requests from now on. Call it once, after Leave.
func (c *Counter) Drain() {
	c.state.Or(draining)
	c.endIdle()
}

// less subtracts one from a count: oneRequest or oneHandler.
func (c *Counter) less(one uint64) {
	if c.state.Add(-one)&draining != 0 {
		c.endIdle()
	}
}

// endIdle closes idle if the server drains and both counts are zero. They stay zero, because
// no request is admitted, and only requests and handlers start handlers. Admit also counts
// a request that it refuses, but then calls endIdle by less.
func (c *Counter) endIdle() {
	for {
		s := c.state.Load()
		if s&draining == 0 || s&(underWay|ended) != 0 {
			return
		}
		if c.state.CompareAndSwap(s, s|ended) {
			close(c.idle)
			return
		}
	}
}

// Idle returns a channel that is closed when the server drains and no request and no handler
// is under way.
func (c *Counter) Idle() <-chan struct{} { return c.idle }

// Draining reports whether new requests are refused.
func (c *Counter) Draining() bool { return c.state.Load()&draining != 0 }

// Leaving reports whether health checks must report that the server is about to stop.
func (c *Counter) Leaving() bool { return c.state.Load()&leaving != 0 }

// Counts returns the numbers of requests and handlers that are under way.
func (c *Counter) Counts() (requests, handlers int) {
	s := c.state.Load() & underWay
	return int(s % oneHandler), int(s / oneHandler)
}

// CutGrace is the time that a slow client, or user code that must return, still has when
// the runtime ends its request early.
const CutGrace = 250 * time.Millisecond

// CloseGrace bounds the end of a shutdown after its context has ended. In this time the
// proxies send their last answers and end their spans. That takes microseconds, unless a
// slow client uses up CutGrace.
const CloseGrace = 2 * CutGrace
