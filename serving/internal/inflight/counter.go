// Package inflight counts the requests and handlers of a server that are under way, and
// runs handlers on goroutines that it keeps.
//
// The life of a [Counter]:
//
//  1. Start admits calls by handle. Requests are admitted without it.
//  2. Leave has the health checks report that the server is about to stop.
//  3. Drain refuses new requests. Idle is closed when nothing is under way.
//
// The package knows no protocol and ends no request. Open counter.go first.
package inflight

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// Counter counts requests and handlers. It admits or refuses a request in the same step, so
// that no request is admitted after draining has begun. Its methods are safe for concurrent
// use.
type Counter struct {
	idle chan struct{} // closed when the server drains and nothing is in progress

	// state has both counts and the bits below in one word, because each request changes it
	// twice.
	state atomic.Uint64
}

// The parts of the state: the number of requests in the proxy, and the number of calls in
// user code, which may outlive their requests.
const (
	oneRequest uint64 = 1
	oneHandler uint64 = 1 << 30
	begun      uint64 = 1 << 60
	leaving    uint64 = 1 << 61
	draining   uint64 = 1 << 62
	ended      uint64 = 1 << 63 // idle is closed, or about to be closed; nothing is admitted any more

	underWay = begun - 1
)

// NewCounter returns a counter that admits requests, and no calls by handle.
func NewCounter() *Counter {
	return &Counter{idle: make(chan struct{})}
}

// Admit counts a request, unless the server drains. RequestDone must follow if it
// returns true.
func (c *Counter) Admit() bool {
	if c.state.Add(oneRequest)&draining != 0 {
		c.less(oneRequest)
		return false
	}
	return true
}

// RequestDone ends the count of a request.
func (c *Counter) RequestDone() { c.less(oneRequest) }

var errNotStarted = errors.New("its server has not started: call Server.Start first")

// Start admits calls by handle from now on.
func (c *Counter) Start() { c.state.Or(begun) }

// AdmitCall counts a call by handle. HandlerDone must follow if it returns nil. It always
// admits a call from user code that is counted itself (inside). Otherwise it fails if the
// server has not started, or with ErrShuttingDown.
func (c *Counter) AdmitCall(inside bool) error {
	s := c.state.Add(oneHandler)
	switch {
	case s&ended != 0, s&draining != 0 && !inside: // if inside is true, the caller has ended meanwhile
		c.less(oneHandler)
		return cause.ErrShuttingDown
	case s&begun == 0 && !inside:
		c.less(oneHandler)
		return errNotStarted
	}
	return nil
}

// HandlerStarts counts a handler. Call it only for an admitted request.
func (c *Counter) HandlerStarts() { c.state.Add(oneHandler) }

// HandlerDone ends the count of a handler or of a call.
func (c *Counter) HandlerDone() { c.less(oneHandler) }

// Leave makes Leaving return true. Requests are admitted until Drain.
func (c *Counter) Leave() { c.state.Or(leaving) }

// Drain refuses new requests from now on. Call it once, after Leave.
func (c *Counter) Drain() {
	c.state.Or(draining)
	c.endIdle()
}

// less ends the count of one request or handler.
func (c *Counter) less(one uint64) {
	if c.state.Add(-one)&draining != 0 {
		c.endIdle()
	}
}

// endIdle closes idle when nothing is in progress. Only requests and handlers start
// handlers, and no request is admitted any more. A request that is refused is counted for a
// moment, and then calls endIdle itself.
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

// Idle returns a channel that is closed when the server drains and nothing is in progress.
func (c *Counter) Idle() <-chan struct{} { return c.idle }

// Draining reports whether new requests are refused.
func (c *Counter) Draining() bool { return c.state.Load()&draining != 0 }

// Leaving reports whether health checks must report that the server is about to stop.
func (c *Counter) Leaving() bool { return c.state.Load()&leaving != 0 }

// Counts returns the numbers of requests and handlers in progress.
func (c *Counter) Counts() (requests, handlers int) {
	s := c.state.Load() & underWay
	return int(s % oneHandler), int(s / oneHandler)
}

// CutGrace is the time for which a slow client, or user code that must return, may delay
// the end of a request that is cut off.
const CutGrace = 250 * time.Millisecond

// CloseGrace bounds the rest of a shutdown after its context has ended: the proxies
// answer and conclude their spans. That takes microseconds, unless clients are slow to
// read and use up CutGrace.
const CloseGrace = 2 * CutGrace
