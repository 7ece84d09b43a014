package stall_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/serving/internal/stall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a connection's direction: what is in force on it, and how often it was set.
type line struct {
	at   time.Time
	sets int
}

func (l *line) set(t time.Time) error {
	l.at = t
	l.sets++
	return nil
}

// left returns how long operations may still take.
func (l *line) left() time.Duration { return time.Until(l.at) }

const limit = time.Minute

// TestLimit: an operation has the limit, and at most a second more, whenever it begins;
// the connection is touched once a second.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		d := stall.New(limit, false, l.set)
		if d.Expired() {
			t.Error("expired before it began")
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			d.Begin(0)
			if left := l.left(); left < limit || left > limit+time.Second {
				t.Fatalf("%v left", left)
			}
			d.Done()
		}
		if l.sets > 11 {
			t.Errorf("set %d times in 10 s", l.sets)
		}
		time.Sleep(2 * limit) // a pause of the handler
		d.Begin(0)
		if d.Expired() || l.left() < limit {
			t.Errorf("after a pause: expired %v, %v left", d.Expired(), l.left())
		}
		time.Sleep(limit + time.Second)
		if !d.Expired() {
			t.Error("not expired")
		}
		d.Begin(limit)
		if left := l.left(); left < 2*limit {
			t.Errorf("after something else: %v left", left)
		}
	})
}

// TestStream: the deadline of a stream is in force during operations only.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		d := stall.New(limit, true, l.set)
		d.Begin(0)
		if l.left() < limit {
			t.Errorf("%v left", l.left())
		}
		if d.Done(); !l.at.IsZero() {
			t.Errorf("after the operation: %v left", l.left())
		}
	})
}

// TestOwn: the handler's deadline holds if it is the earlier, and is not ours.
func TestOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		d := stall.New(limit, false, l.set)
		if err := d.SetOwn(time.Now().Add(time.Second)); err != nil {
			t.Error(err)
		}
		d.Begin(0)
		if l.left() != time.Second {
			t.Errorf("%v left, want the handler's second", l.left())
		}
		time.Sleep(2 * time.Second)
		if d.Expired() {
			t.Error("the handler's deadline counts as ours")
		}
		_ = d.SetOwn(time.Time{})
		if l.left() < limit-2*time.Second {
			t.Errorf("%v left without the handler's", l.left())
		}
		if d.Lift(); !l.at.IsZero() {
			t.Errorf("lifted: %v left", l.left())
		}
		time.Sleep(limit)
		_ = d.SetOwn(time.Now().Add(3 * limit))
		if l.left() != 3*limit {
			t.Errorf("%v left, want the handler's: no operation is under way", l.left())
		}
	})
}

// TestHurry: nothing that the handler does prolongs it; Finish does.
func TestHurry(t *testing.T) {
	for _, limit := range []time.Duration{limit, -1} {
		synctest.Test(t, func(t *testing.T) {
			var l line
			d := stall.New(limit, false, l.set)
			d.Begin(0)
			_ = d.Hurry(time.Now().Add(time.Second))
			time.Sleep(2 * time.Second)
			d.Begin(0)
			d.Lift()
			if l.left() != -time.Second {
				t.Errorf("%v left, want it past", l.left())
			}
			if d.Expired() {
				t.Error("that counts as the limit's")
			}
			switch d.Finish(0); {
			case limit > 0 && l.left() < limit:
				t.Errorf("to finish: %v left", l.left())
			case limit <= 0 && !l.at.IsZero():
				t.Errorf("to finish without a limit: %v left", l.left())
			}
		})
	}
}

// TestFinishOfAStream sets no deadline, which could outlive the stream, unless it has to
// prolong the deadline that Hurry has set.
func TestFinishOfAStream(t *testing.T) {
	var l line
	d := stall.New(limit, true, l.set)
	d.Begin(0)
	d.Done()
	if d.Finish(0); !l.at.IsZero() {
		t.Errorf("%v left, want no deadline", l.left())
	}
	_ = d.Hurry(time.Now())
	if d.Finish(0); l.left() < limit {
		t.Errorf("after Hurry: %v left", l.left())
	}
}

// TestNoLimit touches nothing, and passes errors on.
func TestNoLimit(t *testing.T) {
	l, broken := line{}, errors.New("broken")
	d := stall.New(0, true, func(at time.Time) error { _ = l.set(at); return broken })
	d.Begin(0)
	d.Done()
	d.Finish(0)
	if l.sets > 0 || d.Expired() {
		t.Errorf("set %d times, expired %v", l.sets, d.Expired())
	}
	if err := d.SetOwn(time.Now()); !errors.Is(err, broken) {
		t.Errorf("SetOwn: %v", err)
	}
	if err := d.Hurry(time.Now()); !errors.Is(err, broken) {
		t.Errorf("Hurry: %v", err)
	}
}
