package serving

import (
	"errors"
	"net"
	"os"
	"sync"
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
// To whoever calls its methods it behaves as the connection alone. All of them may
// be called at any time, by several goroutines.
type timed struct {
	net.Conn // its methods that set deadlines are called under mu

	mu      sync.Mutex
	wanted  time.Time // when reads are to end; zero: never
	armed   time.Time // when those of Conn do
	spent   bool      // armed has ended one, so that it ends all
	reading int       // how many are under way
	writing bool      // Conn has a deadline for writes
	closed  bool
	late    error // what a read gives that comes too late; nil before the first
}

// Read implements [net.Conn].
func (t *timed) Read(b []byte) (int, error) {
	if err := t.begin(); err != nil {
		return 0, err
	}
	for {
		n, err := t.Conn.Read(b)
		if !t.goesOn(n, err) {
			return n, err
		}
	}
}

// longPast, in Unix's seconds, is past whatever the clock says. net/http ends a read
// of its own, which often has not begun yet, by a deadline of second 1.
const longPast = 24 * 60 * 60

// begin counts in a read, unless it comes too late for sure.
func (t *timed) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.wanted.IsZero() && t.wanted.Unix() < longPast && !t.closed {
		if t.late == nil {
			local := t.LocalAddr()
			t.late = &net.OpError{Op: "read", Net: local.Network(), Source: local, Addr: t.RemoteAddr(), Err: os.ErrDeadlineExceeded}
		}
		return t.late
	}
	t.reading++
	t.heedLocked()
	return nil
}

// goesOn counts out a read that gave n and err, unless it ended too early.
func (t *timed) goesOn(n int, err error) bool {
	late := n == 0 && err != nil && errors.Is(err, os.ErrDeadlineExceeded)
	t.mu.Lock()
	defer t.mu.Unlock()
	if late {
		if t.wanted.IsZero() || time.Now().Before(t.wanted) {
			t.armLocked()
			return true
		}
		t.spent = true
	}
	t.reading--
	return false
}

// heedLocked has reads end in time, if not too early.
func (t *timed) heedLocked() {
	switch {
	case t.spent:
	case t.wanted.IsZero(), !t.armed.IsZero() && !t.armed.After(t.wanted):
		return
	}
	t.armLocked()
}

func (t *timed) armLocked() {
	t.armed, t.spent = t.wanted, false
	_ = t.Conn.SetReadDeadline(t.armed) // fails where it is closed, and then reads end by themselves
}

// SetReadDeadline implements [net.Conn].
func (t *timed) SetReadDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.Conn.SetReadDeadline(at)
	}
	t.wanted = at
	if t.reading > 0 {
		t.heedLocked()
	}
	return nil
}

// SetWriteDeadline implements [net.Conn]. None is set for most requests, but
// net/http takes it back after each.
func (t *timed) SetWriteDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.IsZero() && !t.writing && !t.closed {
		return nil
	}
	t.writing = !at.IsZero()
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
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	return t.Conn.Close()
}
