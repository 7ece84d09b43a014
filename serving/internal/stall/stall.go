// Package stall bounds the time for which a client may delay a read or a write of its
// connection. It sets the deadlines of the connection.
//
// The life of a [Deadline]: its owner calls Begin before each operation that waits for
// the client, Done after it, and asks Expired if the operation failed. A deadline has a
// margin beyond the limit, so that most operations need not renew it. A handler's own
// deadline stays in force if it is earlier. Hurry ends the operation that is under way,
// and Finish bounds the rest of the server's work. Release is the last call of the
// request's own goroutine. From then on, the connection serves other requests or is gone,
// but user code may still hold the body of this request.
//
// The package reads and writes nothing itself. Open this file, which is all.
package stall

import (
	"errors"
	"sync"
	"time"
)

// maxRenewal is the largest margin of a deadline beyond the limit. A stalled client is
// noticed at the deadline.
const maxRenewal = time.Second

// Deadline is the deadline of one direction of a connection or stream. Create it with
// New, and do not copy it. Its methods are safe for concurrent use, and none blocks.
type Deadline struct {
	limit  time.Duration
	stream bool
	set    func(time.Time) error

	mu    sync.Mutex
	own   time.Time // deadline that the handler has set; zero for none
	ours  time.Time // deadline of the limit; zero for none
	final bool      // Hurry was called, so the handler cannot renew the deadline
	over  bool      // Release was called, so the connection no longer belongs to the request
}

// New returns a deadline that set applies to the connection. A limit of zero or less means
// no limit. stream reports an HTTP/2 stream. Such a stream ends at its deadline even if no
// operation waits, so the limit applies only during operations.
func New(limit time.Duration, stream bool, set func(time.Time) error) Deadline {
	return Deadline{limit: limit, stream: stream, set: set}
}

// Begin renews the limit for the next operation. The operation may first wait for another
// event, for as long as after.
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

// renewLocked applies the limit from a time on. It adds a margin, so that the next renewal
// can be later.
func (d *Deadline) renewLocked(from time.Time) {
	d.ours = from.Add(d.limit + min(maxRenewal, d.limit/8))
	_ = d.setLocked(d.earlierLocked()) // fails if the connection is closed, and then the operation fails, too
}

func (d *Deadline) earlierLocked() time.Time {
	if d.ours.IsZero() || !d.own.IsZero() && d.own.Before(d.ours) {
		return d.own
	}
	return d.ours
}

// Done ends the operation that Begin has begun.
func (d *Deadline) Done() {
	if d.stream {
		d.Lift()
	}
}

// Lift removes the limit, because no operation follows.
func (d *Deadline) Lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ours.IsZero() || d.final {
		return
	}
	d.ours = time.Time{}
	_ = d.setLocked(d.own) // fails if the connection is closed or the request is over
}

// Expired reports whether the current limit has passed, and so has ended an operation that
// failed. Call it before Done.
func (d *Deadline) Expired() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.final && !d.ours.IsZero() && d.earlierLocked().Equal(d.ours) && !time.Now().Before(d.ours)
}

// SetOwn sets the handler's deadline. Zero means none. The error is an error of the
// connection, or errOver.
func (d *Deadline) SetOwn(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own = t
	if !d.ours.IsZero() && time.Now().After(d.ours) {
		d.ours = time.Time{} // this deadline belongs to an earlier operation
	}
	return d.setLocked(d.earlierLocked())
}

// Hurry sets the deadline of the current operation, and of all later operations of the
// handler. The error is an error of the connection, or errOver.
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

// Finish puts the limit in force for the server's work after the handler has returned or
// has lost the connection; after is as in Begin. Without a limit, it only removes a
// deadline that Hurry has set. For a stream, it only renews such a deadline: net/http may
// arm a deadline after the end of the stream, and its timer then holds the stream in
// memory.
func (d *Deadline) Finish(after time.Duration) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.limit > 0 && (d.final || !d.stream && d.ours.Sub(now) < d.limit+after):
		d.renewLocked(now.Add(after))
	case d.limit <= 0 && d.final:
		_ = d.setLocked(d.own) // fails if the connection is closed or the request is over
	}
}

// Release makes all later calls leave the connection alone. It returns when no other call
// uses the connection.
func (d *Deadline) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

// errOver is the error of SetOwn and Hurry after Release.
var errOver = errors.New("set a deadline: the request is over")

// setLocked applies a deadline, unless the request is over.
func (d *Deadline) setLocked(t time.Time) error {
	if d.over {
		return errOver
	}
	return d.set(t)
}
