package measure

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Summary
	}{
		{nil, Summary{}},
		{[]float64{3}, Summary{3, 3, 3, 1}},
		{[]float64{5, 1}, Summary{3, 1, 5, 2}},
		{[]float64{9, 1, 4}, Summary{4, 1, 9, 3}},
		{[]float64{1, 100, 2, 3}, Summary{2.5, 1, 100, 4}},
		{[]float64{500, 2, 3, 7, -50}, Summary{4, -50, 500, 5}},
		{[]float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1000}, Summary{6.5, 2, 1000, 10}},
	} {
		given := slices.Clone(c.values)
		if diff := cmp.Diff(c.want, Summarize(given)); diff != "" {
			t.Errorf("%v (-want +got)\n%s", c.values, diff)
		}
		if !slices.Equal(given, c.values) {
			t.Errorf("%v was changed to %v", c.values, given)
		}
	}
}
