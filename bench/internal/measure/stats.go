package measure

import (
	"math"
	"slices"
)

// Summary is the summary of the repeats of a figure.
type Summary struct {
	Median float64 `json:"median"`
	// Middle is the mean of the middle half of the repeats. Like the median, it does
	// not move with one bad repeat, and it varies less. Of four repeats and fewer it is
	// the median.
	Middle float64 `json:"middle"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// MAD is the median of the distances from the median.
	MAD float64 `json:"mad"`
	N   int     `json:"n"`
}

// Summarize returns the summary of values, in any order. Without values it is zero.
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
	ends := (len(values) + 1) / 4
	middle := mean(slices.Sorted(slices.Values(values))[ends : len(values)-ends])
	return Summary{Median: median, Middle: middle, Min: slices.Min(values), Max: slices.Max(values), MAD: Median(distances), N: len(values)}
}

// Median returns the median of values, in any order, and NaN without values. It does
// not change values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	ends := (len(values) - 1) / 2
	return mean(slices.Sorted(slices.Values(values))[ends : len(values)-ends])
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
