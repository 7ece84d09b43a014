// Package suite runs benchmark cases fairly, compares their results with the
// claims, and writes the report.
//
//   - The rows of a shape take turns, and each round begins with another row, so
//     that a machine that becomes slower affects all rows alike.
//   - The Gate discards a repeat during which other processes used the machine.
//   - A claim is computed in each round. The middle of the rounds is the figure.
//
// Most cases run in a child process, so that each begins with a fresh heap.
package suite

import (
	"context"
	"slices"
)

// Sample maps the names of metric.go to the figures of one run of a case.
type Sample map[string]float64

// Case is a row of a shape. It can run repeatedly.
type Case struct {
	// Suite, Shape and Row are unique together ("spanpath", "saturated", "ours").
	Suite, Shape, Row string
	// Doc describes the row in a line of the report.
	Doc string
	// Quick cases belong to bench-quick and bench-gate.
	Quick bool
	// Repeats is the number of rounds. A shape has as many as the most of its rows.
	Repeats int
	// Run measures once. A figure that cannot be trusted (because a span was lost) is
	// an error.
	Run func(ctx context.Context, env *Env) (Sample, error)
}

// Claim is a bound on a figure.
type Claim struct {
	// Name describes the figure, and names the row that a ratio refers to.
	Name string
	// Suite and Shape select the rounds.
	Suite, Shape string
	// Target is the bound, and Stretch the goal (zero: none). A value at the bound
	// meets it. Unit is written behind the value ("×").
	Target, Stretch float64
	Unit            string
	// Gated claims are checked by bench gate as well, with the bound Gate, or 1.5
	// times Target if Gate is zero.
	Gated bool
	Gate  float64
	// Value computes the figure of a round, and returns false if a row is missing.
	Value func(Round) (float64, bool)
}

// Round is one turn of all rows of a shape: samples by row.
type Round map[string]Sample

// Get returns a metric of a row, and whether it exists.
func (r Round) Get(row, metric string) (float64, bool) {
	value, ok := r[row][metric]
	return value, ok
}

// Ratio returns a metric of one row divided by the same metric of another row.
func (r Round) Ratio(metric, row, of string) (float64, bool) {
	above, ok1 := r.Get(row, metric)
	below, ok2 := r.Get(of, metric)
	return above / below, ok1 && ok2 && below != 0
}

// Difference returns a metric of one row minus the same metric of another row.
func (r Round) Difference(metric, row, than string) (float64, bool) {
	above, ok1 := r.Get(row, metric)
	below, ok2 := r.Get(than, metric)
	return above - below, ok1 && ok2
}

// RatioAbove returns the ratio of two rows, each minus a third row, the floor. A row
// below the floor counts as zero. There is no ratio to a row below the floor.
func (r Round) RatioAbove(floor, metric, row, ofMetric, of string) (float64, bool) {
	above, ok1 := r.Difference(metric, row, floor)
	below, ok2 := r.Difference(ofMetric, of, floor)
	return max(0, above) / below, ok1 && ok2 && below > 0
}

// Set is a list of cases and claims.
type Set struct {
	Cases  []Case
	Claims []Claim
}

// Add appends the cases and claims of another set.
func (s *Set) Add(other Set) {
	s.Cases = append(s.Cases, other.Cases...)
	s.Claims = append(s.Claims, other.Claims...)
}

// shapes groups cases by shape, in the order of the first case of each.
func shapes(cases []Case) [][]Case {
	var list [][]Case
	for _, c := range cases {
		i := slices.IndexFunc(list, func(s []Case) bool { return s[0].Suite == c.Suite && s[0].Shape == c.Shape })
		if i < 0 {
			i = len(list)
			list = append(list, nil)
		}
		list[i] = append(list[i], c)
	}
	return list
}
