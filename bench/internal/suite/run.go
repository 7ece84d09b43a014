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
	// all runs.
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
	chosen := o.Select(shapes)
	for _, s := range chosen {
		results.total += o.repeats(s)
	}
	for _, s := range chosen {
		got, err := o.runShape(ctx, s, results)
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

// runShape runs the rounds of a shape.
func (o Options) runShape(ctx context.Context, s Shape, results *Results) (ShapeResults, error) {
	got := ShapeResults{Shape: s.Name, Rows: s.Rows}
	for n := range o.repeats(s) {
		o.Progress(s.Name, results.done, results.total)
		results.done++
		first := n % len(s.Rows)
		round, err := o.measure(ctx, s, slices.Concat(s.Rows[first:], s.Rows[:first]), results)
		if errors.Is(err, ErrBusy) {
			return got, err
		}
		if ended := ctx.Err(); ended != nil { // even if the run has finished
			return got, cmp.Or(err, ended)
		}
		got.note(n, err)
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
	log := o.Log.With("shape", s.Name)
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

// Check checks the gated claims of the selected shapes. A regression exceeds its bound
// in every round, a machine that is busy for a moment does not. So Check runs a shape
// until each of its claims was within its bound once, at most the given rounds. A
// failed row misses its claims of the round. Check returns the errors of Run.
func Check(ctx context.Context, shapes []Shape, o Options, rounds int) ([]ClaimResult, error) {
	o.Quick, o.Repeats = true, 1
	var gated []Shape
	for _, s := range o.Select(shapes) {
		s.Claims = slices.DeleteFunc(slices.Clone(s.Claims), func(c Claim) bool { return c.Gate == 0 })
		gated = append(gated, s)
	}
	ran := map[string][]Round{}
	holds := func(s Shape) bool {
		return !slices.ContainsFunc(s.Claims, func(c Claim) bool { return !c.of(s.Name, ran[s.Name]).Held() })
	}
	for range rounds {
		results, err := Run(ctx, slices.DeleteFunc(slices.Clone(gated), holds), o)
		if err != nil {
			return nil, err
		}
		for _, s := range results.Shapes {
			ran[s.Shape] = append(ran[s.Shape], s.Rounds...)
		}
	}
	var list []ClaimResult
	for _, s := range gated {
		for _, c := range s.Claims {
			list = append(list, c.of(s.Name, ran[s.Name]))
		}
	}
	return list, nil
}

// Contender is a row in progress. Stop is called once, also for a row that has failed.
type Contender interface {
	Turn(ctx context.Context) error
	Sample() Sample
	Stop() error
}

// Alternate starts the rows, runs n turns of each, and stops them. Short turns let a
// change of the machine's speed affect all rows. If start fails, it may still return a
// contender, whose Stop is called.
func Alternate(ctx context.Context, n int, rows []string, start func(row string) (Contender, error)) (round Round, err error) {
	var all []Contender
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.Stop())
		}
	}()
	for _, row := range rows {
		c, err := start(row)
		if c != nil {
			all = append(all, c)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row, err)
		}
	}
	for range n {
		for i, c := range all {
			if err := c.Turn(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", rows[i], err)
			}
		}
	}
	round = Round{}
	for i, c := range all {
		round[rows[i]] = c.Sample()
	}
	return round, nil
}

// Gate rejects measurements on a busy machine. It measures the CPU time of other
// processes during the whole of a run.
//
// The kernel counts ticks by sampling, so one second has an error of some
// hundredths of a core. Limit must be well above that.
type Gate struct {
	// Limit is the CPU that others may use, in cores.
	Limit float64
	// Patience bounds the time of waiting and of discarded runs, during the life of
	// the gate.
	Patience time.Duration
	// Others returns the CPU time that other processes have used so far.
	Others func() (time.Duration, error)

	spent time.Duration
}

// ErrBusy reports that other processes used the machine for too long.
var ErrBusy = errors.New("the machine is busy")

// watch runs f, and returns the cores that others used meanwhile.
func (g *Gate) watch(ctx context.Context, f func()) (used float64, took time.Duration, err error) {
	began := time.Now()
	before, err := g.Others()
	if err != nil {
		return 0, 0, err
	}
	f()
	if ctx.Err() != nil {
		return 0, 0, context.Cause(ctx)
	}
	after, err := g.Others()
	took = time.Since(began)
	return max(0, float64(after-before)/float64(max(1, took))), took, err
}

// Around runs f. If others used too much of the machine meanwhile, it discards the
// run, waits for an idle machine, and runs f again. It returns ErrBusy when the
// patience is exhausted, and otherwise the error of the run that counts.
func (g *Gate) Around(ctx context.Context, f func() error) (discarded int, err error) {
	for {
		var failed error
		used, took, err := g.watch(ctx, func() { failed = f() })
		if err != nil {
			return discarded, err
		}
		if used <= g.Limit {
			return discarded, failed
		}
		discarded++
		g.spent += took
		if err := g.Wait(ctx); err != nil {
			return discarded, err
		}
	}
}

// look is the time of one look at a machine that may be idle.
const look = time.Second / 2

// Wait returns when the machine is idle, or ErrBusy when the patience is
// exhausted.
func (g *Gate) Wait(ctx context.Context) error {
	for {
		used, took, err := g.watch(ctx, func() {
			select {
			case <-ctx.Done():
			case <-time.After(look):
			}
		})
		switch {
		case err != nil:
			return err
		case g.spent > g.Patience:
			return fmt.Errorf("%w: others use %.2f of its cores, the limit is %.2f, and %s of waiting and repeats did not help; top names the processes",
				ErrBusy, used, g.Limit, g.spent.Round(time.Second))
		case used <= g.Limit:
			return nil
		}
		g.spent += took
	}
}
