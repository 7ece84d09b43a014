// Package suite runs benchmark shapes fairly, compares the figures with their bounds,
// and writes the report.
//
//   - The rows of a shape take turns (Alternate), and each round begins with another row,
//     so that a machine that becomes slower affects all rows alike.
//   - The Gate discards a run during which other processes used the machine.
//   - A claim is computed in each round. The middle of the rounds is the figure.
package suite

import (
	"context"
	"math"

	"github.com/servetrace/servetrace/bench/internal/sink"
)

// Sample has the figures of one run of a row, by metric. The name of a metric is the
// heading of its column in the report, with the unit.
type Sample map[string]float64

// Round has one sample of each row of a shape, by row.
type Round map[string]Sample

// Get returns a metric of a row, and NaN if it was not measured.
func (r Round) Get(row, metric string) float64 {
	if value, ok := r[row][metric]; ok {
		return value
	}
	return math.NaN()
}

// Ratio returns a metric of one row divided by the same metric of another row.
func (r Round) Ratio(metric, row, of string) float64 { return r.Get(row, metric) / r.Get(of, metric) }

// RatioAbove returns the ratio of two rows, each minus a third row, the floor. A row
// below the floor counts as zero. The ratio to a row below the floor is NaN.
func (r Round) RatioAbove(floor, metric, row, ofMetric, of string) float64 {
	above, below := r.Get(row, metric)-r.Get(floor, metric), r.Get(of, ofMetric)-r.Get(floor, ofMetric)
	if below <= 0 {
		return math.NaN()
	}
	return max(0, above) / below
}

// Env is the environment of all shapes of a run. TMPDIR is a folder of the run.
type Env struct {
	// Bin is the folder with our programs, and Collector the path of an OpenTelemetry
	// Collector, which may be missing.
	Bin, Collector string
	// Sink receives the spans of all rows.
	Sink *sink.Sink
}

// Shape is a load on several rows.
type Shape struct {
	// Name is unique among all shapes.
	Name string
	// Rows are in the order of the report. Quick rows belong to bench-quick and
	// bench-gate.
	Rows, Quick []string
	// Repeats is the number of rounds.
	Repeats int
	// Run measures the rows once. A figure that cannot be trusted (because a span was
	// lost) is an error. An error of the type SkippedError leaves the figures valid.
	Run    func(ctx context.Context, env *Env, rows []string) (Round, error)
	Claims []Claim
}

// SkippedError reports that some rows cannot be measured on this machine. Its text has the
// reason.
type SkippedError string

func (s SkippedError) Error() string { return string(s) }

// Claim is a bound on a figure.
type Claim struct {
	// Name describes the figure, and names the row that a ratio refers to. Unit is
	// written behind the value ("×").
	Name, Unit string
	// Bound is met by a value at the bound. Goal is stricter. Zero: no goal.
	Bound, Goal float64
	// Gate is the bound of bench gate. Zero: not checked there.
	Gate float64
	// Value computes the figure of a round. It is NaN if a row is missing.
	Value func(Round) float64
}

// gateSlack is the factor by which other load on the machine may move a ratio.
const gateSlack = 1.5

// Gated adds a claim to bench gate, with 1.5 times its bound.
func (c Claim) Gated() Claim { return c.GatedAt(gateSlack * c.Bound) }

// GatedAt adds a claim to bench gate, with a bound of its own.
func (c Claim) GatedAt(bound float64) Claim {
	c.Gate = bound
	return c
}

// NewRatio returns the claim that the ratio of a metric of two rows is within a bound.
func NewRatio(name, metric, row, of string, bound, goal float64) Claim {
	return Claim{Name: name, Unit: "×", Bound: bound, Goal: goal, Value: func(r Round) float64 { return r.Ratio(metric, row, of) }}
}

// values returns the value of the claim in each round that has its rows.
func (c Claim) values(rounds []Round) []float64 {
	var values []float64
	for _, round := range rounds {
		if v := c.Value(round); !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	return values
}
