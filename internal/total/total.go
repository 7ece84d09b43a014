// Package total adds up counts by name, such as the numbers of dropped spans by reason.
package total

// Of returns the sum of all counts. It returns 0 for a nil map.
func Of[N int | uint64](counts map[string]N) (sum N) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
