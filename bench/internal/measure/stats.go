package measure

import "slices"

// Summary is the summary of the repeats of a figure.
type Summary struct {
	// Middle is the mean of the middle half of the repeats. Like the median, it does
	// not move with one bad repeat, and it varies less. Of four repeats and fewer it is
	// the median.
	Middle   float64
	Min, Max float64
	N        int
}

// Summarize returns the summary of values, in any order. Without values it is zero. It
// does not change values.
//
//nolint:misspell // the word is the function's name
func Summarize(values []float64) Summary {
	n := len(values)
	if n == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	ends := (n + 1) / 4
	if n <= 4 {
		ends = (n - 1) / 2
	}
	sum := 0.0
	for _, v := range sorted[ends : n-ends] {
		sum += v
	}
	return Summary{Middle: sum / float64(n-2*ends), Min: sorted[0], Max: sorted[n-1], N: n}
}
