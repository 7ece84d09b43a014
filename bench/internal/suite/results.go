package suite

import (
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Results are the results of a run, as in the JSON file.
type Results struct {
	Began   time.Time       `json:"began"`
	Took    time.Duration   `json:"took_ns"`
	Commit  string          `json:"commit"`
	Machine measure.Machine `json:"machine"`
	// Versions are the versions of the modules that the rows use.
	Versions map[string]string `json:"versions,omitempty"`
	Quick    bool              `json:"quick,omitempty"`
	// ForeignLimit is the CPU that others were allowed to use, in cores. Discarded is
	// the number of repeats during which they used more.
	ForeignLimit float64        `json:"foreign_limit_cores"`
	Discarded    int            `json:"discarded"`
	Shapes       []ShapeResults `json:"shapes"`
	Claims       []ClaimResult  `json:"claims"`
}

// ShapeResults has the rows of a shape, in the order of the cases.
type ShapeResults struct {
	Suite string       `json:"suite"`
	Shape string       `json:"shape"`
	Rows  []RowResults `json:"rows"`
}

// RowResults has the repeats of a row, one for each round. A failed repeat is nil,
// and Errors has the reason.
type RowResults struct {
	Row     string   `json:"row"`
	Doc     string   `json:"doc,omitempty"`
	Repeats []Sample `json:"repeats"`
	Errors  []string `json:"errors,omitempty"`
}

// Summary returns the summary of a metric over the repeats that have it.
func (r RowResults) Summary(metric string) measure.Summary {
	var values []float64
	for _, sample := range r.Repeats {
		if v, ok := sample[metric]; ok {
			values = append(values, v)
		}
	}
	return measure.Summarize(values)
}

// Rounds returns the rounds of a shape.
func (s ShapeResults) Rounds() []Round {
	var rounds []Round
	for _, row := range s.Rows {
		for i, sample := range row.Repeats {
			for len(rounds) <= i {
				rounds = append(rounds, Round{})
			}
			if sample != nil {
				rounds[i][row.Row] = sample
			}
		}
	}
	return rounds
}

// Failed reports whether a case has failed.
func (r *Results) Failed() bool {
	for _, s := range r.Shapes {
		for _, row := range s.Rows {
			if len(row.Errors) > 0 {
				return true
			}
		}
	}
	return false
}

// ClaimResult is a claim with its measured value.
type ClaimResult struct {
	Name    string          `json:"name"`
	Suite   string          `json:"suite"`
	Shape   string          `json:"shape"`
	Target  float64         `json:"target,omitempty"`
	Stretch float64         `json:"stretch,omitempty"`
	Unit    string          `json:"unit,omitempty"`
	Value   measure.Summary `json:"value"`
}

// Verdict compares a value with its bound.
type Verdict string

// The verdicts. Stretched claims meet the goal as well.
const (
	Stretched Verdict = "stretch"
	Met       Verdict = "met"
	Missed    Verdict = "missed"
)

// Verdict compares the middle of the rounds with target and stretch.
func (c ClaimResult) Verdict() Verdict {
	switch {
	case c.Value.Middle <= c.Stretch && c.Stretch != 0:
		return Stretched
	case c.Value.Middle <= c.Target:
		return Met
	}
	return Missed
}

// Judge computes the claims from the repeats. It omits claims whose rows are missing.
func (r *Results) Judge(claims []Claim) {
	for _, c := range claims {
		if values := r.values(c); len(values) > 0 {
			r.Claims = append(r.Claims, ClaimResult{
				Name: c.Name, Suite: c.Suite, Shape: c.Shape,
				Target: c.Target, Stretch: c.Stretch, Unit: c.Unit, Value: measure.Summarize(values),
			})
		}
	}
}

// values returns the value of a claim in each round that has its rows.
func (r *Results) values(c Claim) []float64 {
	var values []float64
	for _, s := range r.Shapes {
		if s.Suite != c.Suite || s.Shape != c.Shape {
			continue
		}
		for _, round := range s.Rounds() {
			if v, ok := c.Value(round); ok {
				values = append(values, v)
			}
		}
	}
	return values
}
