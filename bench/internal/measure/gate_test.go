package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeMachine is one whose others use so many cores at a time.
type fakeMachine struct {
	began  time.Time
	others func(since time.Duration) time.Duration // what they have used so far
	ours   time.Duration
}

func (m *fakeMachine) gate(limit float64, patience time.Duration) *Gate {
	m.began = time.Now()
	return &Gate{
		Limit: limit, Patience: patience,
		Ours:    func() (time.Duration, error) { return m.ours, nil },
		Busy:    func() (time.Duration, error) { return m.ours + m.others(time.Since(m.began)), nil },
		Busiest: func() []Process { return []Process{{PID: 4711, Name: "compile"}} },
	}
}

// busyUntil is a machine that others use with a core until then.
func busyUntil(end time.Duration) func(time.Duration) time.Duration {
	return func(since time.Duration) time.Duration { return min(since, end) }
}

func TestGateKeepsWhatWasMeasuredAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMachine{others: busyUntil(0)}
		runs := 0
		used, discarded, err := m.gate(0.25, time.Minute).Around(t.Context(), func() error {
			runs++
			time.Sleep(time.Second)
			m.ours += 2 * time.Second // our own load counts for nobody
			return nil
		})
		if used != 0 || discarded != 0 || err != nil || runs != 1 {
			t.Errorf("used %v, discarded %d, error %v, %d runs", used, discarded, err, runs)
		}
	})
}

func TestGateRepeatsWhatWasMeasuredOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMachine{others: busyUntil(3 * time.Second)}
		runs := 0
		used, discarded, err := m.gate(0.25, time.Minute).Around(t.Context(), func() error {
			runs++
			time.Sleep(time.Second)
			if runs == 1 {
				return errors.New("of a run that does not count")
			}
			return nil
		})
		if used != 0 || discarded != 1 || err != nil || runs != 2 {
			t.Errorf("used %v, discarded %d, error %v, %d runs", used, discarded, err, runs)
		}
		if got := time.Since(m.began); got < 4*time.Second {
			t.Errorf("measured again after %v, while the machine was still busy", got-time.Second)
		}
	})
}

func TestGateRefusesWhenPatienceIsAtAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMachine{others: busyUntil(time.Hour)}
		_, discarded, err := m.gate(0.25, 5*time.Second).Around(t.Context(), func() error {
			time.Sleep(time.Second)
			return nil
		})
		var busy *BusyError
		if !errors.As(err, &busy) || discarded != 1 {
			t.Fatalf("discarded %d, error %v, want *BusyError", discarded, err)
		}
		const want = "the machine is busy: others use 1.00 of its cores, where 0.25 are allowed, and 5s of waiting and repeats did not help; the busiest: compile (process 4711)"
		if got := strings.Replace(err.Error(), "6s", "5s", 1); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestGateGivesUpOnACaseThatAlwaysMeetsOthers: idle whenever it is looked at,
// busy whenever a case runs.
func TestGateGivesUpOnACaseThatAlwaysMeetsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used time.Duration
		m := &fakeMachine{others: func(time.Duration) time.Duration { return used }}
		_, _, err := m.gate(0.25, 10*time.Second).Around(t.Context(), func() error {
			time.Sleep(time.Second)
			used += time.Second
			return nil
		})
		var busy *BusyError
		if !errors.As(err, &busy) {
			t.Errorf("error %v, want *BusyError", err)
		}
	})
}

func TestGateGivesTheErrorOfARunThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMachine{others: busyUntil(0)}
		want := errors.New("lost a span")
		if _, _, err := m.gate(0.25, time.Minute).Around(t.Context(), func() error { return want }); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	})
}

func TestGateEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMachine{others: busyUntil(time.Hour)}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		if err := m.gate(0.25, time.Hour).Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}
