// Package stall bounds the time for which a client may delay a read or a write of its
// connection. It sets the deadlines of the connection.
//
// The life of a [Deadline]:
//
//  1. The owner calls Begin before each operation that waits for the client, and Done after
//     it. If the operation failed, Expired reports whether the limit is the reason. A
//     handler's own deadline stays in force if it is earlier.
//  2. Hurry sets an earlier deadline for the operation that is under way.
//  3. Finish sets the limit for the work of net/http after the handler.
//  4. Release makes all later calls leave the connection alone. Then the connection serves
//     other requests or is closed, but user code may still hold the body of this request.
//
// The package reads and writes nothing itself. This file is the only one.
package stall

import (
	"errors"
	"sync"
	"time"
)

// maxRenewal is the largest time for which a deadline is later than the limit. With this
// margin, most operations need not set a new deadline. A stalled client is noticed only at
// the deadline.
const maxRenewal = time.Second

// Deadline is the read or the write deadline of a connection or stream. Create it by New, and
// do not copy it after its first use. Its methods are safe for concurrent use.
type Deadline struct {
	limit  time.Duration         // longest delay of the client; no limit if not positive
	stream bool                  // the deadline is for an HTTP/2 stream
	set    func(time.Time) error // sets the deadline of the connection

	mu    sync.Mutex
	own   time.Time // deadline that the handler has set; zero if it has set none
	ours  time.Time // deadline of the limit; zero if the limit is not in force
	final bool      // Hurry was called, so operations no longer renew the deadline
	over  bool      // Release was called, so the connection no longer belongs to the request
}

// New returns a Deadline that uses set to set the deadline of the connection. A limit of zero
// or less means no limit. stream reports an HTTP/2 stream. Such a stream ends at its
// deadline even if no operation waits, so the limit is in force only during operations.
func New(limit time.Duration, stream bool, set func(time.Time) error) Deadline {
	return Deadline{limit: limit, stream: stream, set: set}
}

// Begin sets the deadline for an operation that begins now. after is the time for which the
// operation may wait for another event before it waits for the client.
func (d *Deadline) Begin(after time.Duration) {
	if d.limit <= 0 {
		return
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.final || d.ours.Sub(now) >= d.limit+after {
		return
	}
	d.renewLocked(now.Add(after))
}

// renewLocked sets the deadline at the limit after from, plus a margin.
func (d *Deadline) renewLocked(from time.Time) {
	d.ours = from.Add(d.limit + min(maxRenewal, d.limit/8))
	_ = d.setLocked(d.earlierLocked()) // fails only for a closed connection, on which the operation fails, too
}

func (d *Deadline) earlierLocked() time.Time {
	if d.ours.IsZero() || !d.own.IsZero() && d.own.Before(d.ours) {
		return d.own
	}
	return d.ours
}

// Done must be called after the operation for which Begin was called.
func (d *Deadline) Done() {
	if d.stream {
		d.Lift()
	}
}

// Lift removes the deadline of the limit, because no operation waits for the client.
func (d *Deadline) Lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ours.IsZero() || d.final {
		return
	}
	d.ours = time.Time{}
	_ = d.setLocked(d.own) // fails only after Release or for a closed connection
}

// Expired reports whether an operation that has failed was ended by the limit, and not by
// the handler's own deadline or by Hurry. Call it before Done.
func (d *Deadline) Expired() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.final && !d.ours.IsZero() && d.earlierLocked().Equal(d.ours) && !time.Now().Before(d.ours)
}

// SetOwn sets the handler's own deadline, or removes it if t is zero. The error is an error
// of the connection, or errOver.
func (d *Deadline) SetOwn(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own = t
	if !d.ours.IsZero() && time.Now().After(d.ours) {
		d.ours = time.Time{} // a deadline that has passed was set for an earlier operation
	}
	return d.setLocked(d.earlierLocked())
}

// Hurry sets the deadline t for the operation that is under way and for all later operations,
// in place of the limit and the handler's own deadline. The error is an error of the
// connection, or errOver.
func (d *Deadline) Hurry(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.final = true
	return d.setLocked(t)
}

// Hurried reports whether Hurry was called.
func (d *Deadline) Hurried() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.final
}

// Finish sets the deadline for the work of net/http after the handler has returned or the
// proxy has taken the response from it. after is as in Begin. Without a limit, Finish only
// removes a deadline that Hurry has set.
//
// For a stream, Finish only replaces a deadline that Hurry has set. A new deadline could be
// set after the end of the stream, and net/http's timer would keep the stream in memory.
func (d *Deadline) Finish(after time.Duration) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.limit > 0 && (d.final || !d.stream && d.ours.Sub(now) < d.limit+after):
		d.renewLocked(now.Add(after))
	case d.limit <= 0 && d.final:
		_ = d.setLocked(d.own) // fails only after Release or for a closed connection
	}
}

// Release makes all later calls leave the connection alone. It waits for calls that are
// under way.
func (d *Deadline) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

// errOver is the error with which SetOwn and Hurry fail after Release.
var errOver = errors.New("set a deadline: the request is over")

// setLocked sets the deadline of the connection, or returns errOver after Release.
func (d *Deadline) setLocked(t time.Time) error {
	if d.over {
		return errOver
	}
	return d.set(t)
}
