package inflight_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
)

// TestNoCallAfterTheLast: a call whose caller ends in the same moment is refused
// once nothing is under way any more: Shutdown does not wait for it.
func TestNoCallAfterTheLast(t *testing.T) {
	k := inflight.NewCounter()
	k.Start()
	if err := k.AdmitCall(false); err != nil {
		t.Fatal(err)
	}
	k.Drain()
	if err := k.AdmitCall(true); err != nil {
		t.Errorf("inside of a call in flight: %v", err)
	}
	k.HandlerDone()
	k.HandlerDone()
	<-k.Idle()
	if err := k.AdmitCall(true); err != cause.ErrShuttingDown {
		t.Errorf("after the last: %v, want ErrShuttingDown", err)
	}
}

// TestCounterConcurrentSafe: when idle is closed, nothing is under way, and nothing is
// let in after that, however many are refused meanwhile.
func TestCounterConcurrentSafe(t *testing.T) {
	for range 200 {
		k := inflight.NewCounter()
		k.Start()
		var inside, late atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					if !k.Admit() {
						_ = k.AdmitCall(false) // refused as well
						continue
					}
					inside.Add(1)
					if err := k.AdmitCall(true); err != nil {
						t.Errorf("inside of a request: %v", err)
						continue
					}
					k.HandlerDone()
					inside.Add(-1)
					k.RequestDone()
				}
			})
		}
		wg.Go(func() {
			<-k.Idle()
			if k.Admit() || k.AdmitCall(true) == nil {
				late.Add(1)
			}
			if n := inside.Load(); n != 0 {
				late.Add(n)
			}
		})
		wg.Go(k.Drain)
		wg.Wait()
		if n := late.Load(); n != 0 {
			t.Fatalf("%d under way after all", n)
		}
	}
}
