package suite

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Gate rejects measurements on a busy machine. It measures the CPU time of other
// processes during the whole of a run.
//
// The kernel counts ticks by sampling, so one second has an error of some
// hundredths of a core. Limit must be well above that.
type Gate struct {
	// Limit is the CPU that others may use, in cores.
	Limit float64
	// Patience bounds the time of waiting and of discarded runs, during the life of
	// the gate.
	Patience time.Duration
	// Others returns the CPU time that other processes have used so far.
	Others func() (time.Duration, error)

	spent time.Duration
}

// ErrBusy reports that other processes used the machine for too long.
var ErrBusy = errors.New("the machine is busy")

// watch runs f, and returns the cores that others used meanwhile.
func (g *Gate) watch(ctx context.Context, f func()) (used float64, took time.Duration, err error) {
	began := time.Now()
	before, err := g.Others()
	if err != nil {
		return 0, 0, err
	}
	f()
	if ctx.Err() != nil {
		return 0, 0, context.Cause(ctx)
	}
	after, err := g.Others()
	took = time.Since(began)
	return max(0, float64(after-before)/float64(max(1, took))), took, err
}

// Around runs f. If others used too much of the machine meanwhile, it discards the
// run, waits for an idle machine, and runs f again. It returns ErrBusy when the
// patience is exhausted, and otherwise the error of the run that counts.
func (g *Gate) Around(ctx context.Context, f func() error) (discarded int, err error) {
	for {
		var failed error
		used, took, err := g.watch(ctx, func() { failed = f() })
		if err != nil {
			return discarded, err
		}
		if used <= g.Limit {
			return discarded, failed
		}
		discarded++
		g.spent += took
		if err := g.Wait(ctx); err != nil {
			return discarded, err
		}
	}
}

// look is the time of one look at a machine that may be idle.
const look = time.Second / 2

// Wait returns when the machine is idle, or ErrBusy when the patience is
// exhausted.
func (g *Gate) Wait(ctx context.Context) error {
	for {
		used, took, err := g.watch(ctx, func() {
			select {
			case <-ctx.Done():
			case <-time.After(look):
			}
		})
		switch {
		case err != nil:
			return err
		case g.spent > g.Patience:
			return fmt.Errorf("%w: others use %.2f of its cores, the limit is %.2f, and %s of waiting and repeats did not help; top names the processes",
				ErrBusy, used, g.Limit, g.spent.Round(time.Second))
		case used <= g.Limit:
			return nil
		}
		g.spent += took
	}
}
