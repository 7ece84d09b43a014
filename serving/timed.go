package serving

import (
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// timed is a connection whose deadlines cost next to nothing. net/http sets one for
// reading up to seven times a request, and nearly always takes it back before
// anybody has read. With the connection itself, each is a change of one of the
// runtime's timers.
//
// Here the deadline is a note, and the connection has one of its own (armed), which
// is the same or earlier while somebody reads: it is changed only where it would be
// too late. Where it ends a read too early, the read goes on.
//
// Who reads counts itself in before it looks at the note, and who changes the note
// looks for readers after that: so one of them sees to armed.
//
// To whoever calls its methods it behaves as the connection alone. All of them may
// be called at any time, by several goroutines.
type timed struct {
	net.Conn // its methods that set deadlines are called under mu

	wanted  atomic.Int64 // when reads are to end: a deadline
	armed   atomic.Int64 // when those of Conn do: a deadline, or spent
	reading atomic.Int32 // how many are under way
	writing atomic.Bool  // Conn has a deadline for writes
	closed  atomic.Bool
	late    atomic.Pointer[net.OpError] // what a read gives that comes too late; nil before the first

	mu sync.Mutex // held while armed and writing change
}

// spent is armed where it has ended a read, so that it ends all.
const spent = math.MinInt64

// longPast is the deadline for all that are past whatever the clock says. net/http
// ends a read of its own, which often has not begun yet, by one of Unix's second 1.
const longPast = spent + 1

// timedBegan is where deadlines count from.
var timedBegan = time.Now()

// deadlineOf gives a deadline in nanoseconds; zero for none.
func deadlineOf(at time.Time) int64 {
	switch {
	case at.IsZero():
		return 0
	case at.Unix() < 24*60*60:
		return longPast
	}
	// Without a monotonic reading it goes by the time of day, which may have been set
	// since timedBegan.
	if at == at.Round(0) { //nolint:staticcheck // the very same
		now := time.Now()
		at = now.Add(at.Sub(now))
	}
	if d := int64(at.Sub(timedBegan)); d != 0 {
		return d
	}
	return -1
}

func timeOf(deadline int64) time.Time {
	if deadline == 0 {
		return time.Time{}
	}
	return timedBegan.Add(time.Duration(deadline))
}

// Read implements [net.Conn].
func (t *timed) Read(b []byte) (int, error) {
	if t.wanted.Load() == longPast && !t.closed.Load() {
		return 0, t.tooLate()
	}
	t.reading.Add(1)
	t.heed()
	for {
		n, err := t.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !t.goesOn() {
			t.reading.Add(-1)
			return n, err
		}
	}
}

// tooLate is what a read gives that comes too late for sure.
func (t *timed) tooLate() error {
	late := t.late.Load()
	if late == nil {
		local := t.LocalAddr()
		late = &net.OpError{Op: "read", Net: local.Network(), Source: local, Addr: t.RemoteAddr(), Err: os.ErrDeadlineExceeded}
		t.late.Store(late)
	}
	return late
}

// isLate tells whether a read was ended by a deadline.
func (t *timed) isLate(err error) bool {
	return err == error(t.late.Load()) || errors.Is(err, os.ErrDeadlineExceeded) //nolint:errorlint // which mostly is the very same
}

// goesOn tells of a read that was ended whether that was too early.
func (t *timed) goesOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := t.wanted.Load()
	if wanted == 0 || int64(time.Since(timedBegan)) < wanted {
		t.armLocked()
		return true
	}
	t.armed.Store(spent)
	return false
}

// heed has reads end in time, if not too early.
func (t *timed) heed() {
	if t.inTime(t.wanted.Load()) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armLocked()
}

// inTime tells whether armed will do for a deadline.
func (t *timed) inTime(wanted int64) bool {
	armed := t.armed.Load()
	return armed != spent && (wanted == 0 || armed != 0 && armed <= wanted)
}

func (t *timed) armLocked() {
	for {
		wanted := t.wanted.Load()
		t.armed.Store(wanted)
		_ = t.Conn.SetReadDeadline(timeOf(wanted)) // fails where it is closed, and then reads end by themselves
		if t.inTime(t.wanted.Load()) {
			return // who has changed it meanwhile may have been content with what armed was before
		}
	}
}

// SetReadDeadline implements [net.Conn].
func (t *timed) SetReadDeadline(at time.Time) error {
	if t.closed.Load() {
		return t.Conn.SetReadDeadline(at)
	}
	wanted := deadlineOf(at)
	if t.wanted.Load() == wanted {
		return nil // as it often is
	}
	t.wanted.Store(wanted)
	if t.reading.Load() > 0 {
		t.heed()
	}
	return nil
}

// SetWriteDeadline implements [net.Conn]. None is set for most requests, but
// net/http takes it back after each.
func (t *timed) SetWriteDeadline(at time.Time) error {
	if at.IsZero() && !t.writing.Load() && !t.closed.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing.Store(!at.IsZero())
	return t.Conn.SetWriteDeadline(at)
}

// SetDeadline implements [net.Conn].
func (t *timed) SetDeadline(at time.Time) error {
	if err := t.SetReadDeadline(at); err != nil {
		return err
	}
	return t.SetWriteDeadline(at)
}

// Close implements [net.Conn].
func (t *timed) Close() error {
	t.closed.Store(true)
	return t.Conn.Close()
}
