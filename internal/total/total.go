// Package total adds up counts that are kept by name, such as the reasons of dropped spans.
package total

// Of returns the sum of all counts. It returns 0 for a nil map.
func Of[N int | uint64](counts map[string]N) (sum N) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
