package measure

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Gate keeps measurements from being made on a busy machine. What others use is
// measured over the whole of a case, beside its own figures.
//
// Ticks are counted by sampling, so that one window of a second is wrong by some
// hundredths of a core; Limit is well above that.
type Gate struct {
	// Limit is how much CPU others may use, in cores.
	Limit float64
	// Patience bounds the waiting for an idle machine and the repeats that were
	// thrown away, over the life of the gate.
	Patience time.Duration
	// Ours is the CPU time that our processes have used so far; it only grows.
	// Busy is that of the machine, BusyCPU if nil.
	Ours func() (time.Duration, error)
	Busy func() (time.Duration, error)
	// Look is how long the machine is looked at when waiting, half a second if
	// zero.
	Look time.Duration
	// Busiest names who uses the machine, for the refusal.
	Busiest func() []Process

	spent time.Duration
}

// BusyError is the refusal: what others used, in cores, and who they are.
type BusyError struct {
	Foreign, Limit float64
	Waited         time.Duration
	Processes      []Process
}

func (b *BusyError) Error() string {
	text := fmt.Sprintf("the machine is busy: others use %.2f of its cores, where %.2f are allowed, and %s of waiting and repeats did not help",
		b.Foreign, b.Limit, b.Waited.Round(time.Second))
	var names []string
	for _, p := range b.Processes {
		names = append(names, fmt.Sprintf("%s (process %d)", p.Name, p.PID))
	}
	if len(names) > 0 {
		text += "; the busiest: " + strings.Join(names, ", ")
	}
	return text
}

// reading is one look at the clocks.
type reading struct {
	at         time.Time
	busy, ours time.Duration
}

func (g *Gate) read() (reading, error) {
	busy := g.Busy
	if busy == nil {
		busy = BusyCPU
	}
	r := reading{at: time.Now()}
	var err error
	if r.busy, err = busy(); err != nil {
		return r, err
	}
	r.ours, err = g.Ours()
	return r, err
}

// foreign is what others used between two readings, in cores.
func foreign(from, to reading) float64 {
	wall := to.at.Sub(from.at)
	if wall <= 0 {
		return 0
	}
	return max(0, float64((to.busy-from.busy)-(to.ours-from.ours))/float64(wall))
}

// Around runs f and tells what others used meanwhile, in cores. Where that was
// too much it waits for an idle machine and runs f again, and gives how many
// runs were thrown away; a *BusyError where patience is at an end. The error of f is
// given only from a run that counts.
func (g *Gate) Around(ctx context.Context, f func() error) (used float64, discarded int, err error) {
	for {
		before, err := g.read()
		if err != nil {
			return 0, discarded, err
		}
		failed := f()
		if ctx.Err() != nil {
			return 0, discarded, context.Cause(ctx)
		}
		after, err := g.read()
		if err != nil {
			return 0, discarded, err
		}
		if used = foreign(before, after); used <= g.Limit {
			return used, discarded, failed
		}
		discarded++
		g.spent += after.at.Sub(before.at)
		if err := g.Wait(ctx); err != nil {
			return used, discarded, err
		}
	}
}

// Wait returns when the machine is idle; a *BusyError where patience is at an end.
func (g *Gate) Wait(ctx context.Context) error {
	look := g.Look
	if look == 0 {
		look = time.Second / 2
	}
	for {
		before, err := g.read()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(look):
		}
		after, err := g.read()
		if err != nil {
			return err
		}
		used := foreign(before, after)
		if g.spent > g.Patience {
			busy := &BusyError{Foreign: used, Limit: g.Limit, Waited: g.spent}
			if g.Busiest != nil {
				busy.Processes = g.Busiest()
			}
			return busy
		}
		if used <= g.Limit {
			return nil
		}
		g.spent += after.at.Sub(before.at)
	}
}
