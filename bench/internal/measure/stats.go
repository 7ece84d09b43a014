package measure

import (
	"math"
	"slices"
)

// Summary is what is said of the repeats of one figure.
type Summary struct {
	Median float64 `json:"median"`
	// Middle is the mean of the middle half of the repeats: what goes wrong in one of
	// them does not move it, as it does not the median, and it repeats better. Of four
	// and less it is the median.
	Middle float64 `json:"middle"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// MAD is the median of the distances from the median: half of the repeats lie
	// within it.
	MAD float64 `json:"mad"`
	N   int     `json:"n"`
}

// Summarize gives the summary of values, in any order; the zero Summary of none.
//
//nolint:misspell // the word is the function's name
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	median := Median(values)
	distances := make([]float64, len(values))
	for i, v := range values {
		distances[i] = math.Abs(v - median)
	}
	return Summary{Median: median, Middle: middle(values), Min: slices.Min(values), Max: slices.Max(values), MAD: Median(distances), N: len(values)}
}

// middle is the mean of values less a quarter of them at each end, in any order.
func middle(values []float64) float64 {
	ends := (len(values) + 1) / 4
	half := slices.Sorted(slices.Values(values))[ends : len(values)-ends]
	sum := 0.0
	for _, v := range half {
		sum += v
	}
	return sum / float64(len(half))
}

// Median is the middle of values, in any order, or the mean of the two in the
// middle; NaN of none. values stay as they are.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
