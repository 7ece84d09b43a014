package suite

import (
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Results are everything of a run: they are what the JSON file holds.
type Results struct {
	// Began is when, Commit what of, and Machine where.
	Began   time.Time       `json:"began"`
	Took    time.Duration   `json:"took_ns"`
	Commit  string          `json:"commit"`
	Machine measure.Machine `json:"machine"`
	// Versions are those of the modules that the rows stand for.
	Versions map[string]string `json:"versions,omitempty"`
	Quick    bool              `json:"quick,omitempty"`
	// ForeignLimit is what others were allowed to use, in cores. Discarded counts
	// the repeats that were thrown away because they used more.
	ForeignLimit float64        `json:"foreign_limit_cores"`
	Discarded    int            `json:"discarded"`
	Shapes       []ShapeResults `json:"shapes"`
	Claims       []ClaimResult  `json:"claims"`
}

// ShapeResults are the rows of a shape, in the order of the cases.
type ShapeResults struct {
	Suite string       `json:"suite"`
	Shape string       `json:"shape"`
	Rows  []RowResults `json:"rows"`
}

// RowResults are the repeats of a row. That of round i is Repeats[i]; it is nil
// where the case failed, and then Errors says why.
type RowResults struct {
	Row     string   `json:"row"`
	Doc     string   `json:"doc,omitempty"`
	Repeats []Sample `json:"repeats"`
	Errors  []string `json:"errors,omitempty"`
}

// Summary is that of a metric over the repeats that have it.
func (r RowResults) Summary(metric string) (measure.Summary, bool) {
	var values []float64
	for _, sample := range r.Repeats {
		if v, ok := sample[metric]; ok {
			values = append(values, v)
		}
	}
	return measure.Summarize(values), len(values) > 0
}

// Rounds gives the rounds of a shape.
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

// Failed tells whether a case has failed.
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

// Shape finds the results of a shape.
func (r *Results) Shape(suite, shape string) (ShapeResults, bool) {
	for _, s := range r.Shapes {
		if s.Suite == suite && s.Shape == shape {
			return s, true
		}
	}
	return ShapeResults{}, false
}

// ClaimResult is a claim with what was measured.
type ClaimResult struct {
	Name    string          `json:"name"`
	Suite   string          `json:"suite"`
	Shape   string          `json:"shape"`
	Target  float64         `json:"target,omitempty"`
	Stretch float64         `json:"stretch,omitempty"`
	Unit    string          `json:"unit,omitempty"`
	Value   measure.Summary `json:"value"`
}

// Verdict is what a claim came to.
type Verdict string

// What a claim can come to. Stretched is met, and more.
const (
	Stretched Verdict = "stretch"
	Met       Verdict = "met"
	Missed    Verdict = "missed"
)

// Verdict holds the middle of the rounds against target and stretch.
func (c ClaimResult) Verdict() Verdict {
	switch {
	case c.Value.Middle <= c.Stretch && c.Stretch != 0:
		return Stretched
	case c.Value.Middle <= c.Target:
		return Met
	}
	return Missed
}

// Judge computes the claims anew from the repeats. A claim whose rows are
// missing is left out.
func (r *Results) Judge(claims []Claim) {
	r.Claims = nil
	for _, c := range claims {
		shape, ok := r.Shape(c.Suite, c.Shape)
		if !ok {
			continue
		}
		var values []float64
		for _, round := range shape.Rounds() {
			if v, ok := c.Value(round); ok {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue
		}
		r.Claims = append(r.Claims, ClaimResult{
			Name: c.Name, Suite: c.Suite, Shape: c.Shape,
			Target: c.Target, Stretch: c.Stretch, Unit: c.Unit, Value: measure.Summarize(values),
		})
	}
}
