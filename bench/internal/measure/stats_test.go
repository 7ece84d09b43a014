package measure

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedianAndMiddle(t *testing.T) {
	for _, c := range []struct {
		values         []float64
		median, middle float64
	}{
		{[]float64{3}, 3, 3},
		{[]float64{5, 1}, 3, 3},
		{[]float64{9, 1, 4}, 4, 4},
		{[]float64{1, 100, 2, 3}, 2.5, 2.5},
		{[]float64{500, 2, 3, 7, -50}, 3, 4},
		{[]float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1000}, 6.5, 6.5},
	} {
		given := slices.Clone(c.values)
		if got := Median(given); got != c.median {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.median)
		}
		if got := Summarize(given).Middle; got != c.middle {
			t.Errorf("middle of %v = %v, want %v", c.values, got, c.middle)
		}
		if !slices.Equal(given, c.values) {
			t.Errorf("%v was changed to %v", c.values, given)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestSummarize(t *testing.T) {
	// One bad repeat moves neither the median nor the MAD by much.
	got := Summarize([]float64{10, 12, 11, 500, 9})
	if diff := cmp.Diff(Summary{Median: 11, Middle: 11, Min: 9, Max: 500, MAD: 1, N: 5}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(Summary{}, Summarize(nil)); diff != "" {
		t.Errorf("of nothing (-want +got)\n%s", diff)
	}
}
