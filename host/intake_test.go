package host

import (
	"sync"
	"testing"
	"time"
)

// A span that ends while the worker disarms the timer must find, or leave, a
// timer that runs; else all later ones wait for a flush.
func TestTimerIsNotLostConcurrentSafe(t *testing.T) {
	in := newIntake(Config{BatchAge: time.Hour, BatchSpans: 1}, newMemory(1<<20))
	for round := range 100_000 {
		var both sync.WaitGroup
		in.noticed(false)
		both.Go(in.disarm)
		both.Go(func() { in.noticed(false) })
		both.Wait()
		if armed, running := in.armed.Load(), in.timer.Stop(); armed && !running {
			t.Fatalf("round %d: the timer counts as armed and does not run", round)
		}
		in.armed.Store(false)
	}
}
