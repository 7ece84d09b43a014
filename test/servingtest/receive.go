package servingtest

import (
	"testing"
	"time"
)

// Patience bounds each wait of a test: beyond it something is stuck.
const Patience = 30 * time.Second

// Receive returns the next value of ch, which stands for an event. It fails the test after
// Patience.
func Receive[T any](tb testing.TB, event string, ch <-chan T) (v T) {
	tb.Helper()
	select {
	case v = <-ch:
	case <-time.After(Patience):
		tb.Fatalf("waited in vain for: %s", event)
	}
	return v
}

// Await waits until ok returns true, for a condition that has no event. It fails the test
// after Patience.
func Await(tb testing.TB, condition string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(Patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			tb.Fatalf("waited in vain for: %s", condition)
		}
	}
}
