package suite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

const cpu = "CPU, ns"

// options returns the options of a run on an idle machine.
func options(repeats int) Options {
	idle := &Gate{Others: func() (time.Duration, error) { return 0, nil }}
	return Options{Repeats: repeats, Gate: idle, Env: &Env{}, Log: slog.New(slog.DiscardHandler)}
}

// run runs shapes in a bubble, in which the looks at the machine take no time.
func run(t *testing.T, o Options, shapes ...Shape) (results *Results, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { results, err = Run(t.Context(), shapes, o) })
	return results, err
}

// recorded returns a shape that records the rows of each run, and takes the figures of
// a row in turn.
func recorded(name string, ran *[]string, rows ...string) Shape {
	return Shape{Name: name, Rows: rows, Quick: rows, Repeats: 4, Run: func(_ context.Context, _ *Env, rows []string) (Round, error) {
		round := Round{}
		for _, row := range rows {
			*ran = append(*ran, row)
			round[row] = Sample{cpu: 1}
		}
		return round, nil
	}}
}

func TestRowsTakeTurns(t *testing.T) {
	var ran []string
	together := recorded("two", &ran, "x", "y")
	together.Together = true
	results, err := run(t, options(3), recorded("one", &ran, "a", "b", "c"), together)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a", "b", "c", "b", "c", "a", "c", "a", "b", "x", "y", "x", "y", "x", "y"}
	if diff := cmp.Diff(want, ran); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if n := len(results.Shapes[0].Rounds); n != 3 || len(results.Shapes[0].Rounds[2]) != 3 {
		t.Errorf("%d rounds, want 3: %v", n, results.Shapes[0].Rounds)
	}
}

// figures returns a shape whose rows have one figure a round.
func figures(rows map[string][]float64, claims ...Claim) Shape {
	n := map[string]int{}
	s := Shape{Name: "one", Claims: claims, Run: func(_ context.Context, _ *Env, rs []string) (Round, error) {
		values := rows[rs[0]]
		n[rs[0]]++
		return Round{rs[0]: Sample{cpu: values[(n[rs[0]]-1)%len(values)]}}, nil
	}}
	for row := range rows {
		s.Rows = append(s.Rows, row)
	}
	slices.Sort(s.Rows)
	s.Quick = s.Rows
	return s
}

// TestClaimIsOfRounds has rounds whose ratio of medians would be 1.
func TestClaimIsOfRounds(t *testing.T) {
	results, err := run(t, options(3), figures(map[string][]float64{"ours": {10, 40, 20}, "theirs": {20, 20, 40}},
		Claim{Name: "half", Bound: 0.6, Goal: 0.5, Value: func(r Round) float64 { return r.Ratio(cpu, "ours", "theirs") }},
		Claim{Name: "of a missing row", Value: func(r Round) float64 { return r.Ratio(cpu, "ours", "missing") }}))
	if err != nil {
		t.Fatal(err)
	}
	want := []ClaimResult{{Shape: "one", Name: "half", Bound: 0.6, Goal: 0.5, Value: measure.Summary{Middle: 0.5, Min: 0.5, Max: 2, N: 3}}}
	if diff := cmp.Diff(want, results.Claims); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		bound, goal, value float64
		want               string
	}{
		{0.6, 0.4, 0.4, "goal met"}, {0.6, 0.4, 0.41, "met"}, {0.6, 0.4, 0.6, "met"}, {0.6, 0.4, 0.61, "missed"},
		{0, 0, 0, "met"}, {0, 0, 1, "missed"}, {0.6, 0, 0.1, "met"},
	} {
		r := ClaimResult{Bound: c.bound, Goal: c.goal, Value: measure.Summary{Middle: c.value}}
		if got := r.Verdict(); got != c.want {
			t.Errorf("%v against %v and %v: %q, want %q", c.value, c.bound, c.goal, got, c.want)
		}
	}
}

func TestRatioAbove(t *testing.T) {
	r := Round{"floor": {cpu: 10}, "ours": {cpu: 14}, "theirs": {cpu: 18}, "cheap": {cpu: 9}}
	for _, c := range []struct {
		row, of string
		want    float64
	}{
		{"ours", "theirs", 0.5},
		{"cheap", "theirs", 0},        // below the floor is noise
		{"ours", "cheap", math.NaN()}, // nothing to divide by
		{"missing", "theirs", math.NaN()},
	} {
		if got := r.RatioAbove("floor", cpu, c.row, cpu, c.of); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s to %s: %v, want %v", c.row, c.of, got, c.want)
		}
	}
}

func TestRowThatFails(t *testing.T) {
	failing := func(until int, err error) Shape {
		calls := 0
		return Shape{Name: "one", Rows: []string{"a"}, Run: func(context.Context, *Env, []string) (Round, error) {
			if calls++; calls <= until {
				return nil, err
			}
			return Round{"a": {cpu: 1}}, nil
		}}
	}
	for _, c := range []struct {
		name   string
		shape  Shape
		errors []string
	}{
		{"succeeds at the last try", failing(tries-1, errors.New("12 spans are missing")), nil},
		{"fails at each", failing(tries, errors.New("12 spans are missing")), []string{"round 1 of a: 12 spans are missing"}},
	} {
		results, err := run(t, options(1), c.shape)
		if err != nil || results.Failed() != (c.errors != nil) {
			t.Errorf("%s: failed %v, error %v", c.name, results.Failed(), err)
		}
		if diff := cmp.Diff(c.errors, results.Shapes[0].Errors); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestSkippedRowIsNoFailure(t *testing.T) {
	const reason = SkippedError("no Collector")
	s := Shape{Name: "one", Rows: []string{"a", "b"}, Together: true, Run: func(context.Context, *Env, []string) (Round, error) {
		return Round{"a": {cpu: 1}}, reason
	}}
	results, err := run(t, options(2), s)
	if err != nil || results.Failed() || results.Shapes[0].Rounds[1].Get("a", cpu) != 1 {
		t.Errorf("%+v, %v", results, err)
	}
	if diff := cmp.Diff([]string{string(reason)}, results.Shapes[0].Skipped); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestEndOfContextEndsTheRun ends the context during a run, and just after it.
func TestEndOfContextEndsTheRun(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ran := 0
			s := Shape{Name: "one", Rows: []string{"a"}, Run: func(context.Context, *Env, []string) (Round, error) {
				if ran++; ran == 2 && !after {
					cancel()
				}
				return Round{"a": {cpu: 1}}, nil
			}}
			o := options(3)
			o.Gate.Others = func() (time.Duration, error) {
				if ran == 2 {
					cancel()
				}
				return 0, nil
			}
			if results, err := Run(ctx, []Shape{s}, o); results != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("after %t: got %v, %v, want %v", after, results, err, context.Canceled)
			}
			if ran != 2 {
				t.Errorf("after %t: %d runs, want 2", after, ran)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	shapes := []Shape{{Name: "x", Rows: []string{"1", "2"}, Quick: []string{"2"}, Repeats: 4}, {Name: "y", Rows: []string{"2"}, Repeats: 4}}
	for _, c := range []struct {
		o       Options
		want    []string
		repeats int
	}{
		{Options{}, []string{"x1", "x2", "y2"}, 4},
		{Options{Quick: true}, []string{"x2"}, quickRepeats},
		{Options{Shape: regexp.MustCompile("^x$"), Repeats: 9}, []string{"x1", "x2"}, 9},
		{Options{Row: regexp.MustCompile("2")}, []string{"x2", "y2"}, 4},
	} {
		var names []string
		for _, s := range c.o.Select(shapes) {
			for _, row := range s.Rows {
				names = append(names, s.Name+row)
			}
			if got := c.o.repeats(s); got != c.repeats {
				t.Errorf("%+v: %d repeats, want %d", c.o, got, c.repeats)
			}
		}
		if diff := cmp.Diff(c.want, names); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", c.o, diff)
		}
	}
}

// TestCheck checks that a claim holds once it was within its bound, and that only
// shapes with a claim that does not hold run again.
func TestCheck(t *testing.T) {
	var ran []string
	shape := func(name string, gate float64, values ...float64) Shape {
		s := figures(map[string][]float64{name: values}, Claim{Name: name, Gate: gate, Value: func(r Round) float64 { return r.Get(name, cpu) }})
		measure := s.Run
		s.Name = name
		s.Run = func(ctx context.Context, env *Env, rows []string) (Round, error) {
			ran = append(ran, name)
			return measure(ctx, env, rows)
		}
		return s
	}
	synctest.Test(t, func(t *testing.T) {
		held, err := Check(t.Context(), []Shape{
			shape("good", 15, 14), shape("noisy", 15, 40, 12), shape("dear", 15, 40, 16, 18), shape("free", 0, 99),
		}, options(0), 3)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"good", "noisy", "dear", "noisy", "dear", "dear"}, ran); diff != "" {
			t.Errorf("ran (-want +got)\n%s", diff)
		}
		var got []any
		for _, h := range held {
			got = append(got, h.Shape, h.Best, h.Rounds, h.OK())
		}
		if diff := cmp.Diff([]any{"good", 14.0, 1, true, "noisy", 12.0, 2, true, "dear", 16.0, 3, false}, got); diff != "" {
			t.Errorf("held (-want +got)\n%s", diff)
		}
	})
	if h := (Held{Claim: Claim{Bound: 1}.Gated()}); h.OK() || h.Claim.Gate != 1.5 {
		t.Errorf("a claim that was never computed is held, or its bound is wrong: %v", h.Claim.Gate)
	}
}

// TestProgress: each run is reported at its beginning, with the number of all runs.
func TestProgress(t *testing.T) {
	var ran, got []string
	o := options(2)
	o.Progress = func(shape string, done, total int) { got = append(got, fmt.Sprintf("%s %d of %d", shape, done, total)) }
	if _, err := run(t, o, recorded("x", &ran, "1"), recorded("y", &ran, "1", "2")); err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 || got[0] != fmt.Sprintf("x 0 of %d", len(got)) || got[len(got)-1] != fmt.Sprintf("y %d of %d", len(got)-1, len(got)) {
		t.Errorf("%q", got)
	}
}
