package servingtest

import (
	"testing"
	"time"
)

// Patience bounds each wait of a test: beyond it something is stuck.
const Patience = 20 * time.Second

// Receive returns the next value of ch. what names the awaited event. It fails the test
// after Patience.
func Receive[T any](tb testing.TB, what string, ch <-chan T) (v T) {
	tb.Helper()
	select {
	case v = <-ch:
	case <-time.After(Patience):
		tb.Fatalf("waited in vain for: %s", what)
	}
	return v
}
