package suite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// newGate returns a gate on a machine of which others use one core for a time.
func newGate(busy, patience time.Duration) *Gate {
	began := time.Now()
	return &Gate{
		Limit: 0.25, Patience: patience, Look: time.Second / 2,
		Others:  func() (time.Duration, error) { return min(time.Since(began), busy), nil },
		Busiest: func() []measure.Process { return []measure.Process{{PID: 4711, Name: "compile"}} },
	}
}

func TestGateRepeats(t *testing.T) {
	failure := errors.New("lost a span")
	for _, test := range []struct {
		name      string
		busy      time.Duration
		runs      []error
		discarded int
		err       error
	}{
		{"idle", 0, []error{nil}, 0, nil},
		{"failed on an idle machine", 0, []error{failure}, 0, failure},
		{"busy at first", 3 * time.Second, []error{failure, nil}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				used, discarded, err := newGate(test.busy, time.Minute).Around(t.Context(), func() error {
					time.Sleep(time.Second)
					runs++
					return test.runs[runs-1]
				})
				if used != 0 || discarded != test.discarded || !errors.Is(err, test.err) || runs != len(test.runs) {
					t.Errorf("used %v, discarded %d, error %v, %d runs", used, discarded, err, runs)
				}
			})
		})
	}
}

func TestGateRefusesABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, discarded, err := newGate(time.Hour, 5*time.Second).Around(t.Context(), func() error {
			time.Sleep(time.Second)
			return nil
		})
		var busy *BusyError
		if !errors.As(err, &busy) || discarded != 1 {
			t.Fatalf("discarded %d, error %v, want *BusyError", discarded, err)
		}
		const want = "the machine is busy: others use 1.00 of its cores, the limit is 0.25, and 6s of waiting and repeats did not help; the busiest: compile (process 4711)"
		if got := strings.Replace(err.Error(), "5s", "6s", 1); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestGateIsBusyDuringEachCase has a machine that is idle except while a case runs.
func TestGateIsBusyDuringEachCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used time.Duration
		g := newGate(0, 10*time.Second)
		g.Others = func() (time.Duration, error) { return used, nil }
		_, _, err := g.Around(t.Context(), func() error {
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

func TestGateEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		if err := newGate(time.Hour, time.Hour).Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}
