package measure

import (
	"math"
	"slices"
	"testing"
	"time"

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
			t.Errorf("the middle of %v = %v, want %v", c.values, got, c.middle)
		}
		if !slices.Equal(given, c.values) {
			t.Errorf("they changed %v to %v", c.values, given)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("Median of nothing = %v, want NaN", got)
	}
}

func TestSummarize(t *testing.T) {
	// One repeat that went wrong moves neither the median nor the MAD by much.
	got := Summarize([]float64{10, 12, 11, 500, 9})
	if diff := cmp.Diff(Summary{Median: 11, Middle: 11, Min: 9, Max: 500, MAD: 1, N: 5}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(Summary{}, Summarize(nil)); diff != "" {
		t.Errorf("of nothing (-want +got)\n%s", diff)
	}
}

// TestHistogramBuckets walks every border: a bucket's upper end is in it, and
// the next value in the next.
func TestHistogramBuckets(t *testing.T) {
	for i := range bucketOf(math.MaxInt64) {
		end := upperEnd(i)
		if got := bucketOf(end); got != i {
			t.Fatalf("bucketOf(%d) = %d, want %d", end, got, i)
		}
		if got := bucketOf(end + 1); got != i+1 {
			t.Fatalf("bucketOf(%d) = %d, want %d", end+1, got, i+1)
		}
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var h, other Histogram
	for i := range 1000 {
		into := &h
		if i%2 == 0 {
			into = &other
		}
		into.Add(time.Duration(i+1) * time.Microsecond)
	}
	h.Merge(&other)
	if h.Count() != 1000 || h.Max() != time.Millisecond || h.Mean() != 500500*time.Nanosecond {
		t.Errorf("count %d, max %v, mean %v", h.Count(), h.Max(), h.Mean())
	}
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
		exact := float64(uint64(q*999)+1) * float64(time.Microsecond)
		if got := float64(h.Quantile(q)); got < exact || got > exact*33/32 {
			t.Errorf("Quantile(%v) = %v, want %v or at most a 32nd more", q, got, exact)
		}
	}
	if got := new(Histogram).Quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing: %v", got)
	}
	h.Add(-time.Second)
	if got := h.Quantile(0); got != 0 {
		t.Errorf("a negative duration counts as %v, want 0", got)
	}
}
