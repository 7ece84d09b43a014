package suite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newGate returns a gate on a machine of which others use one core for a time.
func newGate(busy, patience time.Duration) *Gate {
	began := time.Now()
	return &Gate{Limit: 0.25, Patience: patience, Others: func() (time.Duration, error) { return min(time.Since(began), busy), nil }}
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
				discarded, err := newGate(test.busy, time.Minute).Around(t.Context(), func() error {
					time.Sleep(time.Second)
					runs++
					return test.runs[runs-1]
				})
				if discarded != test.discarded || !errors.Is(err, test.err) || runs != len(test.runs) {
					t.Errorf("discarded %d, error %v, %d runs", discarded, err, runs)
				}
			})
		})
	}
}

// TestGateRefusesABusyMachine has a machine that is always busy, and a machine that is
// idle except during a run.
func TestGateRefusesABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always, during := newGate(time.Hour, 5*time.Second), newGate(0, 10*time.Second)
		var used time.Duration
		during.Others = func() (time.Duration, error) { return used, nil }
		for _, g := range []*Gate{always, during} {
			_, err := g.Around(t.Context(), func() error {
				time.Sleep(time.Second)
				used += time.Second
				return nil
			})
			if want := "the machine is busy: others use "; !errors.Is(err, ErrBusy) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
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
