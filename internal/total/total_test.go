package total_test

import (
	"testing"

	"github.com/servetrace/servetrace/internal/total"
)

func TestOf(t *testing.T) {
	if got := total.Of(map[string]uint64{"a": 1, "b": 2}); got != 3 {
		t.Errorf("Of = %d, want 3", got)
	}
	if got := total.Of[int](nil); got != 0 {
		t.Errorf("Of(nil) = %d, want 0", got)
	}
}
