package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"
)

// Options select cases and the number of their repeats.
type Options struct {
	// Suite, Shape and Row select by name. Nil selects all.
	Suite, Shape, Row *regexp.Regexp
	// Quick selects quick cases only.
	Quick bool
	// Repeats overrides the number of rounds, unless it is zero.
	Repeats int
	Gate    *Gate
	Env     *Env
	Log     *slog.Logger
}

// Select returns the cases that the options select.
func (o Options) Select(cases []Case) []Case {
	match := func(expr *regexp.Regexp, name string) bool { return expr == nil || expr.MatchString(name) }
	var chosen []Case
	for _, c := range cases {
		if (c.Quick || !o.Quick) && match(o.Suite, c.Suite) && match(o.Shape, c.Shape) && match(o.Row, c.Row) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// Run runs the selected cases and computes the claims. The results have the errors
// of failed cases. Run returns an error only if there are no results: a *BusyError,
// or the end of ctx.
func Run(ctx context.Context, set Set, o Options) (*Results, error) {
	results := &Results{Began: time.Now().UTC(), Quick: o.Quick, ForeignLimit: o.Gate.Limit}
	if err := o.Gate.Wait(ctx); err != nil {
		return nil, err
	}
	for _, cases := range shapes(o.Select(set.Cases)) {
		got, err := o.runShape(ctx, cases, results)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", got.Suite, got.Shape, err)
		}
		results.Shapes = append(results.Shapes, got)
	}
	results.Took = time.Since(results.Began)
	results.Judge(set.Claims)
	return results, nil
}

// quickRepeats bounds the rounds of a quick run.
const quickRepeats = 3

// repeats returns the number of rounds of a shape.
func (o Options) repeats(cases []Case) int {
	if o.Repeats > 0 {
		return o.Repeats
	}
	most := 0
	for _, c := range cases {
		most = max(most, c.Repeats)
	}
	if o.Quick {
		most = min(most, quickRepeats)
	}
	return most
}

// runShape runs the rows of a shape in turns.
func (o Options) runShape(ctx context.Context, cases []Case, results *Results) (ShapeResults, error) {
	got := ShapeResults{Suite: cases[0].Suite, Shape: cases[0].Shape}
	for _, c := range cases {
		got.Rows = append(got.Rows, RowResults{Row: c.Row, Doc: c.Doc})
	}
	for round := range o.repeats(cases) {
		for i := range cases {
			i = (i + round) % len(cases)
			sample, err := o.runCase(ctx, cases[i], round, results)
			var busy *BusyError
			if errors.As(err, &busy) {
				return got, err
			}
			if ended := ctx.Err(); ended != nil { // even if the case has finished
				return got, cmp.Or(err, ended)
			}
			row := &got.Rows[i]
			row.Repeats = append(row.Repeats, sample)
			if err != nil {
				row.Errors = append(row.Errors, fmt.Sprintf("repeat %d: %v", round+1, err))
			}
		}
	}
	return got, nil
}

// tries bounds the attempts of a case in a round. A connection that is cut once in
// a hundred runs, or a machine that stops for 10 ms (dd-trace-go then drops spans),
// must not fail a case. Each failure is logged.
const tries = 5

func (o Options) runCase(ctx context.Context, c Case, round int, results *Results) (Sample, error) {
	log := o.Log.With("suite", c.Suite, "shape", c.Shape, "row", c.Row, "round", round+1)
	var failed error
	for range tries {
		var sample Sample
		began := time.Now()
		foreign, discarded, err := o.Gate.Around(ctx, func() (err error) {
			sample, err = c.Run(ctx, o.Env)
			return err
		})
		results.Discarded += discarded
		if discarded > 0 {
			log.Warn("repeats were thrown away: others used the machine", "times", discarded)
		}
		var busy *BusyError
		if errors.As(err, &busy) || ctx.Err() != nil {
			return nil, err
		}
		if failed = cmp.Or(err, sample.check()); failed == nil {
			sample[Foreign] = foreign
			log.Info("measured", "took", time.Since(began).Round(time.Millisecond))
			return sample, nil
		}
		log.Warn("failed", "error", failed)
	}
	return nil, failed
}

// check returns an error for an empty sample, and for an unknown metric.
func (s Sample) check() error {
	if len(s) == 0 {
		return errors.New("nothing was measured")
	}
	for name := range s {
		if !Known(name) {
			return fmt.Errorf("metric %q is not of the vocabulary", name)
		}
	}
	return nil
}

// gateSlack is the factor by which other load on the machine may move a ratio.
const gateSlack = 1.5

// Bound returns the bound that Check compares the claim with.
func (c Claim) Bound() float64 { return cmp.Or(c.Gate, gateSlack*c.Target) }

// Held is the result of Check for a claim.
type Held struct {
	Claim Claim
	// Best is the lowest value of Rounds rounds.
	Best   float64
	Rounds int
}

// OK reports whether the best round was within the bound.
func (h Held) OK() bool { return h.Rounds > 0 && h.Best <= h.Claim.Bound() }

// Check checks the gated claims. A regression exceeds its bound in every round, a
// machine that is busy for a moment does not. So Check runs a shape until each of
// its claims was within its bound once, at most the given rounds. A failed case
// misses its claims of the round. Check returns the errors of Run.
func Check(ctx context.Context, set Set, o Options, rounds int) ([]Held, error) {
	var held []Held
	for _, c := range set.Claims {
		if c.Gated {
			held = append(held, Held{Claim: c})
		}
	}
	o.Repeats = 1
	for range rounds {
		cases := slices.DeleteFunc(o.Select(set.Cases), func(c Case) bool {
			return !slices.ContainsFunc(held, func(h Held) bool { return !h.OK() && h.Claim.Suite == c.Suite && h.Claim.Shape == c.Shape })
		})
		if len(cases) == 0 {
			break
		}
		results, err := Run(ctx, Set{Cases: cases}, o)
		if err != nil {
			return nil, err
		}
		for i := range held {
			held[i].add(results.values(held[i].Claim))
		}
	}
	return held, nil
}

// add adds the values of rounds.
func (h *Held) add(values []float64) {
	for _, value := range values {
		if h.Rounds == 0 || value < h.Best {
			h.Best = value
		}
		h.Rounds++
	}
}
