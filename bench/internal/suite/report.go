package suite

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Results are the results of a run.
type Results struct {
	Began   time.Time
	Took    time.Duration
	Commit  string
	Machine string
	// ForeignLimit is the CPU that others were allowed to use, in cores. Discarded is
	// the number of runs during which they used more.
	ForeignLimit float64
	Discarded    int
	Shapes       []ShapeResults
	Claims       []ClaimResult

	done, total int // runs
}

// ShapeResults has the rounds of a shape.
type ShapeResults struct {
	Shape  string
	Rows   []string
	Rounds []Round
	// Errors are the failed runs, and Skipped the reasons for rows that are missing.
	Errors, Skipped []string
}

// ClaimResult is a claim of a shape with its measured value.
type ClaimResult struct {
	Claim
	Shape    string
	Measured measure.Summary
}

// of returns the result of the claim in the rounds of a shape.
func (c Claim) of(shape string, rounds []Round) ClaimResult {
	return ClaimResult{c, shape, measure.Summarize(c.values(rounds))}
}

// Held reports whether the best round was within the bound of the gate.
func (c ClaimResult) Held() bool { return c.Measured.N > 0 && c.Measured.Min <= c.Gate }

// note adds the error of a run.
func (s *ShapeResults) note(round int, err error) {
	var skipped SkippedError
	switch {
	case err == nil:
	case !errors.As(err, &skipped):
		s.Errors = append(s.Errors, fmt.Sprintf("round %d: %v", round+1, err))
	case !slices.Contains(s.Skipped, string(skipped)):
		s.Skipped = append(s.Skipped, string(skipped))
	}
}

// add adds a shape, and the claims that have a value in some round.
func (r *Results) add(s Shape, got ShapeResults) {
	r.Shapes = append(r.Shapes, got)
	for _, c := range s.Claims {
		if result := c.of(s.Name, got.Rounds); result.Measured.N > 0 {
			r.Claims = append(r.Claims, result)
		}
	}
}

// Failed reports whether a row has failed.
func (r *Results) Failed() bool {
	return slices.ContainsFunc(r.Shapes, func(s ShapeResults) bool { return len(s.Errors) > 0 })
}

// Verdict compares the middle of the rounds with goal and bound.
func (c ClaimResult) Verdict() string {
	switch {
	case c.Measured.Middle <= c.Goal && c.Goal != 0:
		return "goal met"
	case c.Measured.Middle <= c.Bound:
		return "met"
	}
	return "missed"
}

// Markdown returns the report as text: the machine, the claims, and a table for each
// shape.
func (r *Results) Markdown() string {
	w := new(strings.Builder)
	fmt.Fprintf(w, "# Benchmark of %s\n\n", r.Commit)
	fmt.Fprintf(w, "%s, %s. Took %s; %d runs were thrown away because others used more than %.2f cores.\n\n",
		r.Began.Format("2006-01-02 15:04 MST"), r.Machine, r.Took.Round(time.Second), r.Discarded, r.ForeignLimit)
	fmt.Fprint(w, "A figure is the mean of the middle half of the rounds, in brackets the lowest and the highest. A ratio is computed in each round.\n")
	if len(r.Claims) > 0 {
		fmt.Fprint(w, "\n## Claims\n\n| claim | shape | bound | goal | measured | |\n| --- | --- | --- | --- | --- | --- |\n")
	}
	for _, c := range r.Claims {
		goal := "–"
		if c.Goal != 0 || c.Bound == 0 {
			goal = number(c.Goal) + c.Unit
		}
		fmt.Fprintf(w, "| %s | %s | %s%s | %s | %s%s (%s–%s) | %s |\n", c.Name, c.Shape, number(c.Bound), c.Unit, goal,
			number(c.Measured.Middle), c.Unit, number(c.Measured.Min), number(c.Measured.Max), c.Verdict())
	}
	for _, s := range r.Shapes {
		s.write(w)
	}
	return w.String()
}

func (s ShapeResults) write(w *strings.Builder) {
	found := map[string]bool{}
	for _, round := range s.Rounds {
		for _, sample := range round {
			for m := range sample {
				found[m] = true
			}
		}
	}
	metrics := slices.Sorted(maps.Keys(found))
	fmt.Fprintf(w, "\n## %s\n\n| row | %s |\n| --- |%s\n", s.Shape, strings.Join(metrics, " | "), strings.Repeat(" --- |", len(metrics)))
	for _, row := range s.Rows {
		fmt.Fprintf(w, "| %s |", row)
		for _, m := range metrics {
			figure := Claim{Value: func(r Round) float64 { return r.Get(row, m) }}
			fmt.Fprintf(w, " %s |", withSpread(figure.of(s.Shape, s.Rounds).Measured))
		}
		fmt.Fprintln(w)
	}
	for _, reason := range s.Skipped {
		fmt.Fprintf(w, "\nNot measured: %s\n", reason)
	}
	for _, e := range s.Errors {
		fmt.Fprintf(w, "\n**Failed**: %s\n", strings.ReplaceAll(e, "\n", " "))
	}
}

func withSpread(s measure.Summary) string {
	switch {
	case s.N == 0:
		return "–"
	case s.Min == s.Max:
		return number(s.Middle)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Middle), number(s.Min), number(s.Max))
}

// number formats three digits, or an integer with commas.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 100:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return humanize.Comma(int64(math.Round(v)))
	}
}
