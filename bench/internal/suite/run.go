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
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Options choose what is run, and how often.
type Options struct {
	// Suite, Shape and Row choose by their names; nil: all.
	Suite, Shape, Row *regexp.Regexp
	// Quick leaves out what is not Quick.
	Quick bool
	// Repeats is how often each case is run; zero: as often as it says.
	Repeats int
	// Gate watches the machine.
	Gate *measure.Gate
	// Env is what cases are given.
	Env *Env
	// Log is told of each case.
	Log *slog.Logger
}

func (o Options) wants(c Case) bool {
	match := func(expr *regexp.Regexp, name string) bool { return expr == nil || expr.MatchString(name) }
	return (c.Quick || !o.Quick) && match(o.Suite, c.Suite) && match(o.Shape, c.Shape) && match(o.Row, c.Row)
}

// Select gives the cases that the options choose.
func (o Options) Select(cases []Case) []Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return !o.wants(c) })
}

// Run runs the chosen cases and holds them against the claims. A case that
// fails is in the results; the error is that nothing can be said at all: a
// *measure.BusyError, or the end of ctx.
func Run(ctx context.Context, set Set, o Options) (*Results, error) {
	results := &Results{Began: time.Now().UTC(), Quick: o.Quick, ForeignLimit: o.Gate.Limit}
	if err := o.Gate.Wait(ctx); err != nil {
		return nil, err
	}
	for _, s := range shapes(o.Select(set.Cases)) {
		got, err := o.runShape(ctx, s, results)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", s.suite, s.shape, err)
		}
		results.Shapes = append(results.Shapes, got)
	}
	results.Took = time.Since(results.Began)
	results.Judge(set.Claims)
	return results, nil
}

// The repeats of a case that does not say, and the most of a quick run.
const (
	defaultRepeats = 5
	quickRepeats   = 3
)

// repeats is how many rounds a shape has.
func (o Options) repeats(s shape) int {
	if o.Repeats > 0 {
		return o.Repeats
	}
	most := 0
	for _, c := range s.cases {
		most = max(most, c.Repeats)
	}
	if most == 0 {
		most = defaultRepeats
	}
	if o.Quick {
		most = min(most, quickRepeats)
	}
	return most
}

// runShape lets the rows take turns.
func (o Options) runShape(ctx context.Context, s shape, results *Results) (ShapeResults, error) {
	got := ShapeResults{Suite: s.suite, Shape: s.shape}
	for _, c := range s.cases {
		got.Rows = append(got.Rows, RowResults{Row: c.Row, Doc: c.Doc})
	}
	repeats := o.repeats(s)
	for round := range repeats {
		for i := range s.cases {
			// Each round begins with another row, so that none is always first.
			i = (i + round) % len(s.cases)
			sample, err := o.runCase(ctx, s.cases[i], round, results)
			var busy *measure.BusyError
			if errors.As(err, &busy) {
				return got, err
			}
			if ended := ctx.Err(); ended != nil { // the case may have been done all the same
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

// tries is how often a case is tried in a round: what goes wrong once in a hundred
// runs (a connection that was cut), or where the machine stands still for some 10 ms
// (dd-trace-go drops what its queue does not hold), is not what is measured. It is
// logged all the same.
const tries = 5

func (o Options) runCase(ctx context.Context, c Case, round int, results *Results) (Sample, error) {
	log := o.Log.With("suite", c.Suite, "shape", c.Shape, "row", c.Row, "round", round+1)
	var failed error
	for range tries {
		var sample Sample
		began := time.Now()
		foreign, discarded, err := o.Gate.Around(ctx, func() (err error) {
			sample, err = o.runOnce(ctx, c)
			return err
		})
		results.Discarded += discarded
		if discarded > 0 {
			log.Warn("repeats were thrown away: others used the machine", "times", discarded)
		}
		var busy *measure.BusyError
		if errors.As(err, &busy) || ctx.Err() != nil {
			return nil, err
		}
		if err == nil {
			sample[Foreign] = foreign
			log.Info("measured", "took", time.Since(began).Round(time.Millisecond))
			return sample, nil
		}
		log.Warn("failed", "error", err)
		failed = err
	}
	return nil, failed
}

// runOnce gives a case its place, and takes it away again.
func (o Options) runOnce(ctx context.Context, c Case) (Sample, error) {
	env, done, err := o.Env.forCase()
	if err != nil {
		return nil, err
	}
	defer done()
	sample, err := c.Run(ctx, env)
	if err != nil {
		return nil, err
	}
	if len(sample) == 0 {
		return nil, errors.New("nothing was measured")
	}
	for _, name := range slices.Sorted(maps.Keys(sample)) {
		if !Known(name) {
			return nil, fmt.Errorf("metric %q is not of the vocabulary", name)
		}
	}
	return maps.Clone(sample), nil
}
