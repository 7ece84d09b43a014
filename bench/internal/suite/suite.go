package suite

import (
	"context"
	"slices"
)

// Sample is what one run of a case has measured, by the names of metric.go.
type Sample map[string]float64

// Case is one row of a shape: it can be run again and again.
type Case struct {
	// Suite, Shape and Row name it, all in plain words ("spanpath", "saturated",
	// "BSP + otlptracehttp"); together they are unique.
	Suite, Shape, Row string
	// Doc says what the row is, in a line for the report.
	Doc string
	// Quick: it is part of bench-quick, which shows the headline claims only.
	Quick bool
	// Repeats is how often it is run; zero: 5. A shape has as many rounds as the
	// most of its rows.
	Repeats int
	// Run measures once. A figure that cannot be trusted (a span lost where none
	// may be) is an error, not a sample.
	Run func(ctx context.Context, env *Env) (Sample, error)
}

// Claim is what we say of the figures and hold them to.
type Claim struct {
	// Name says it in words, with the row that it is a ratio of.
	Name string
	// Suite and Shape are the rounds that it is about.
	Suite, Shape string
	// Target is met by a value at or below it, Stretch likewise, which is what we
	// go for; zero: none. Unit is shown behind the value ("×").
	Target, Stretch float64
	Unit            string
	// Gated: bench gate holds it too, on whatever machine, with the bound Gate, or
	// 1.5 times the target where that is zero.
	Gated bool
	Gate  float64
	// Value computes it from one round; false where a row is missing, and then
	// the claim is left out of the report.
	Value func(Round) (float64, bool)
}

// Round is one turn of all rows of a shape: samples by row.
type Round map[string]Sample

// Get gives a metric of a row, and whether it is there.
func (r Round) Get(row, metric string) (float64, bool) {
	value, ok := r[row][metric]
	return value, ok
}

// Ratio gives a metric of one row divided by that of another.
func (r Round) Ratio(metric, row, of string) (float64, bool) {
	above, ok1 := r.Get(row, metric)
	below, ok2 := r.Get(of, metric)
	return above / below, ok1 && ok2 && below != 0
}

// RatioAbove gives the same of what both rows are above a third one, the floor:
// that of metric for the row, and of its own for the other. A row that is not
// above the floor counts as at it; one that it is to be divided by gives nothing.
func (r Round) RatioAbove(floor, metric, row, ofMetric, of string) (float64, bool) {
	base, ok0 := r.Get(floor, metric)
	ofBase, ok1 := r.Get(floor, ofMetric)
	above, ok2 := r.Get(row, metric)
	below, ok3 := r.Get(of, ofMetric)
	if !ok0 || !ok1 || !ok2 || !ok3 || below <= ofBase {
		return 0, false
	}
	return max(0, above-base) / (below - ofBase), true
}

// Set is all cases and claims.
type Set struct {
	Cases  []Case
	Claims []Claim
}

// Add puts the cases and claims of another behind s's.
func (s *Set) Add(other Set) {
	s.Cases = append(s.Cases, other.Cases...)
	s.Claims = append(s.Claims, other.Claims...)
}

// shape is what is run together.
type shape struct {
	suite, shape string
	cases        []Case
}

// shapes are the cases by shape, in the order of their first ones.
func shapes(cases []Case) []shape {
	var list []shape
	for _, c := range cases {
		i := slices.IndexFunc(list, func(s shape) bool { return s.suite == c.Suite && s.shape == c.Shape })
		if i < 0 {
			i = len(list)
			list = append(list, shape{suite: c.Suite, shape: c.Shape})
		}
		list[i].cases = append(list[i].cases, c)
	}
	return list
}
