package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options select rows and the number of rounds.
type Options struct {
	// Shape and Row select by name. Nil selects all.
	Shape, Row *regexp.Regexp
	// Quick selects quick rows only.
	Quick bool
	// Repeats overrides the number of rounds, unless it is zero.
	Repeats int
	Gate    *Gate
	Env     *Env
	Log     *slog.Logger
	// Progress gets the shape in progress, and the numbers of runs that have ended and of
	// all runs. It may be nil.
	Progress func(shape string, done, total int)
}

// Select returns the shapes with their selected rows. Shapes without rows are left out.
func (o Options) Select(shapes []Shape) []Shape {
	excluded := func(expr *regexp.Regexp, name string) bool { return expr != nil && !expr.MatchString(name) }
	var chosen []Shape
	for _, s := range shapes {
		s.Rows = slices.DeleteFunc(slices.Clone(s.Rows), func(row string) bool {
			return excluded(o.Shape, s.Name) || excluded(o.Row, row) || o.Quick && !slices.Contains(s.Quick, row)
		})
		if len(s.Rows) > 0 {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// Run runs the selected shapes and computes the claims. The results have the errors of
// failed rows. Run returns an error only if there are no results: ErrBusy, or the end
// of ctx.
func Run(ctx context.Context, shapes []Shape, o Options) (*Results, error) {
	results := &Results{Began: time.Now().UTC(), ForeignLimit: o.Gate.Limit}
	if err := o.Gate.Wait(ctx); err != nil {
		return nil, err
	}
	chosen, done, total := o.Select(shapes), 0, 0
	for _, s := range chosen {
		total += o.runs(s)
	}
	for _, s := range chosen {
		got, err := o.runShape(ctx, s, results, func() {
			if o.Progress != nil {
				o.Progress(s.Name, done, total)
			}
			done++
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		results.add(s, got)
	}
	results.Took = time.Since(results.Began)
	return results, nil
}

// quickRepeats bounds the rounds of a quick run.
const quickRepeats = 3

// repeats returns the number of rounds of a shape.
func (o Options) repeats(s Shape) int {
	switch {
	case o.Repeats > 0:
		return o.Repeats
	case o.Quick:
		return min(s.Repeats, quickRepeats)
	}
	return s.Repeats
}

// runs returns the number of runs of a shape.
func (o Options) runs(s Shape) (n int) {
	for round := range o.repeats(s) {
		n += len(s.turns(round))
	}
	return n
}

// runShape runs the rounds of a shape. It calls begin at the beginning of each run.
func (o Options) runShape(ctx context.Context, s Shape, results *Results, begin func()) (ShapeResults, error) {
	got := ShapeResults{Shape: s.Name, Rows: s.Rows}
	for n := range o.repeats(s) {
		round := Round{}
		for _, rows := range s.turns(n) {
			begin()
			part, err := o.measure(ctx, s, rows, results)
			if errors.Is(err, ErrBusy) {
				return got, err
			}
			if ended := ctx.Err(); ended != nil { // even if the run has finished
				return got, cmp.Or(err, ended)
			}
			maps.Copy(round, part)
			got.note(n, rows, err)
		}
		got.Rounds = append(got.Rounds, round)
	}
	return got, nil
}

// tries bounds the attempts of a run. A connection that is cut once in a hundred runs,
// or a machine that stops for 10 ms (dd-trace-go then drops spans), must not fail a
// row. Each failure is logged.
const tries = 5

// measure runs the rows once.
func (o Options) measure(ctx context.Context, s Shape, rows []string, results *Results) (Round, error) {
	log := o.Log.With("shape", s.Name, "rows", strings.Join(rows, "; "))
	var round Round
	var discarded int
	var err error
	for range tries {
		began := time.Now()
		discarded, err = o.Gate.Around(ctx, func() (err error) {
			round, err = s.Run(ctx, o.Env, rows)
			return err
		})
		results.Discarded += discarded
		if discarded > 0 {
			log.Warn("runs were thrown away: others used the machine", "times", discarded)
		}
		var skipped SkippedError
		switch {
		case err == nil:
			log.Info("measured", "took", time.Since(began).Round(time.Millisecond))
			return round, nil
		case errors.As(err, &skipped):
			return round, err
		case errors.Is(err, ErrBusy), ctx.Err() != nil:
			return nil, err
		}
		log.Warn("failed", "error", err)
	}
	return nil, err
}

// Held is the result of Check for a claim.
type Held struct {
	Shape string
	Claim Claim
	// Best is the lowest value of Rounds rounds.
	Best   float64
	Rounds int
}

// OK reports whether the best round was within the bound.
func (h Held) OK() bool { return h.Rounds > 0 && h.Best <= h.Claim.Gate }

// Check checks the gated claims of the selected shapes. A regression exceeds its bound
// in every round, a machine that is busy for a moment does not. So Check runs a shape
// until each of its claims was within its bound once, at most the given rounds. A
// failed row misses its claims of the round. Check returns the errors of Run.
func Check(ctx context.Context, shapes []Shape, o Options, rounds int) ([]Held, error) {
	o.Quick, o.Repeats = true, 1
	shapes = o.Select(shapes)
	var held []Held
	for _, s := range shapes {
		for _, c := range s.Claims {
			if c.Gate > 0 {
				held = append(held, Held{Shape: s.Name, Claim: c})
			}
		}
	}
	for range rounds {
		shapes = slices.DeleteFunc(shapes, func(s Shape) bool {
			return !slices.ContainsFunc(held, func(h Held) bool { return h.Shape == s.Name && !h.OK() })
		})
		results, err := Run(ctx, shapes, o)
		if err != nil {
			return nil, err
		}
		for i := range held {
			held[i].add(results)
		}
	}
	return held, nil
}

// add adds the rounds of the claim's shape.
func (h *Held) add(results *Results) {
	for _, s := range results.Shapes {
		if s.Shape != h.Shape {
			continue
		}
		for _, value := range h.Claim.values(s.Rounds) {
			if h.Rounds == 0 || value < h.Best {
				h.Best = value
			}
			h.Rounds++
		}
	}
}
