package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	return Options{Repeats: repeats, Gate: idle, Env: &Env{}, Log: slog.New(slog.DiscardHandler), Progress: func(string, int, int) {}}
}

// run runs shapes in a bubble, in which the looks at the machine take no time.
func run(t *testing.T, o Options, shapes ...Shape) (results *Results, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { results, err = Run(t.Context(), shapes, o) })
	return results, err
}

// TestRowsTakeTurns checks the order of rows and rounds, and their progress.
func TestRowsTakeTurns(t *testing.T) {
	var ran, progress []string
	s := Shape{Name: "one", Rows: []string{"a", "b", "c"}}
	s.Run = func(ctx context.Context, _ *Env, rows []string) (Round, error) {
		return Alternate(ctx, 2, rows, func(row string) (Contender, error) { return contender{row, &ran}, nil })
	}
	o := options(3)
	o.Progress = func(shape string, done, total int) {
		progress = append(progress, fmt.Sprintf("%s %d of %d", shape, done, total))
	}
	results, err := run(t, o, s)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(ran, ""), "abcabc-a-b-cbcabca-b-c-acabcab-c-a-b"; got != want {
		t.Errorf("turns and stops %q, want %q", got, want)
	}
	if rounds := results.Shapes[0].Rounds; len(rounds) != 3 || rounds[2].Get("c", cpu) != 1 {
		t.Errorf("rounds %v", rounds)
	}
	if diff := cmp.Diff([]string{"one 0 of 3", "one 1 of 3", "one 2 of 3"}, progress); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// contender records its turns and its stop.
type contender struct {
	name string
	ran  *[]string
}

func (c contender) Turn(context.Context) error { *c.ran = append(*c.ran, c.name); return nil }
func (contender) Sample() Sample               { return Sample{cpu: 1} }
func (c contender) Stop() error                { *c.ran = append(*c.ran, "-"+c.name); return nil }

// figures returns a shape whose rows have one figure a round.
func figures(rows map[string][]float64, claims ...Claim) Shape {
	n := 0
	s := Shape{Name: "one", Claims: claims, Rows: slices.Sorted(maps.Keys(rows)), Run: func(context.Context, *Env, []string) (Round, error) {
		round := Round{}
		for row, values := range rows {
			round[row] = Sample{cpu: values[n%len(values)]}
		}
		n++
		return round, nil
	}}
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
	want := measure.Summary{Middle: 0.5, Min: 0.5, Max: 2, N: 3}
	if got := results.Claims; len(got) != 1 || got[0].Name != "half" || got[0].Shape != "one" || got[0].Measured != want {
		t.Errorf("got %v, want one of %v", got, want)
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
	for _, c := range []struct {
		name            string
		failures        int
		err             error
		errors, skipped []string
	}{
		{"succeeds at the last try", tries - 1, errors.New("12 spans are missing"), nil, nil},
		{"fails at each", 2 * tries, errors.New("12 spans are missing"), []string{"round 1: 12 spans are missing", "round 2: 12 spans are missing"}, nil},
		{"is skipped in each round", 2, SkippedError("no Collector"), nil, []string{"no Collector"}},
	} {
		calls := 0
		results, err := run(t, options(2), Shape{Name: "one", Rows: []string{"a"}, Run: func(context.Context, *Env, []string) (Round, error) {
			if calls++; calls <= c.failures {
				return nil, c.err
			}
			return Round{"a": {cpu: 1}}, nil
		}})
		if err != nil || results.Failed() != (c.errors != nil) {
			t.Errorf("%s: failed %v, error %v", c.name, results.Failed(), err)
		}
		if diff := cmp.Diff([][]string{c.errors, c.skipped}, [][]string{results.Shapes[0].Errors, results.Shapes[0].Skipped}); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
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
			got = append(got, h.Shape, h.Measured.Min, h.Measured.N, h.Held())
		}
		if diff := cmp.Diff([]any{"good", 14.0, 1, true, "noisy", 12.0, 2, true, "dear", 16.0, 3, false}, got); diff != "" {
			t.Errorf("held (-want +got)\n%s", diff)
		}
	})
}

var update = flag.Bool("update", false, "write the golden file again")

// sample returns the results of a run.
func sample() *Results {
	r := &Results{
		Began: time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC), Took: 90 * time.Second, Commit: "0123abc", ForeignLimit: 0.25, Discarded: 2,
		Machine: "2 processors (AMD)",
	}
	const total, objects, lost = "CPU total, ns/span", "allocations, /span", "spans lost"
	saturated := ShapeResults{
		Shape: "saturated", Rows: []string{"SDK floor", "BSP", "ours", "naive <plugin>"},
		Errors: []string{"round 2 of naive <plugin>: 12 spans are missing:\nin the account"}, Skipped: []string{"no Collector"},
	}
	for _, drift := range []float64{1, 0.9, 1.2} {
		saturated.Rounds = append(saturated.Rounds, Round{"SDK floor": {total: 2000 * drift}, "BSP": {total: 6600 * drift, objects: 6}, "ours": {total: 4100 * drift, objects: 0.25}})
	}
	ratio := func(row, of string) func(Round) float64 {
		return func(r Round) float64 { return r.RatioAbove("SDK floor", total, row, total, of) }
	}
	r.add(Shape{Name: saturated.Shape, Claims: []Claim{
		{Name: "above floor", Bound: 0.6, Goal: 0.5, Unit: "×", Value: ratio("ours", "BSP")},
		{Name: "more than theirs", Bound: 0.2, Unit: "×", Value: ratio("BSP", "ours")},
		{Name: "of a missing row", Bound: 0.2, Unit: "×", Value: ratio("naive <plugin>", "BSP")},
	}}, saturated)
	r.add(Shape{Name: "slow sink", Claims: []Claim{{Name: "spans lost", Value: func(r Round) float64 { return r.Get("ours", lost) }}}},
		ShapeResults{Shape: "slow sink", Rows: []string{"ours"}, Rounds: []Round{{"ours": {lost: 0, "spans/s": 64000}}}})
	return r
}

func TestReport(t *testing.T) {
	got, golden := sample().Markdown(), filepath.Join("testdata", "report.md")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got), -update writes it again\n%s", diff)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0004: "0.000", 0.3512: "0.351", 1: "1", 6.754: "6.75", 99.94: "99.9", 100.4: "100", 1234.5: "1,235", 1234567: "1,234,567", -1500: "-1,500",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

// newGate returns a gate on a machine of which others use one core for a time.
func newGate(busy, patience time.Duration) *Gate {
	began := time.Now()
	return &Gate{Limit: 0.25, Patience: patience, Others: func() (time.Duration, error) { return min(time.Since(began), busy), nil }}
}

func TestGateRepeats(t *testing.T) {
	failure := errors.New("lost a span")
	for _, test := range []struct {
		name      string
		busy      time.Duration
		runs      []error
		discarded int
		err       error
	}{
		{"idle", 0, []error{nil}, 0, nil},
		{"failed on an idle machine", 0, []error{failure}, 0, failure},
		{"busy at first", 3 * time.Second, []error{failure, nil}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				discarded, err := newGate(test.busy, time.Minute).Around(t.Context(), func() error {
					time.Sleep(time.Second)
					runs++
					return test.runs[runs-1]
				})
				if discarded != test.discarded || !errors.Is(err, test.err) || runs != len(test.runs) {
					t.Errorf("discarded %d, error %v, %d runs", discarded, err, runs)
				}
			})
		})
	}
}

// TestGateRefusesABusyMachine has a machine that is always busy, and a machine that is
// idle except during a run.
func TestGateRefusesABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always, during := newGate(time.Hour, 5*time.Second), newGate(0, 10*time.Second)
		var used time.Duration
		during.Others = func() (time.Duration, error) { return used, nil }
		for _, g := range []*Gate{always, during} {
			_, err := g.Around(t.Context(), func() error {
				time.Sleep(time.Second)
				used += time.Second
				return nil
			})
			if want := "the machine is busy: others use "; !errors.Is(err, ErrBusy) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
	})
}
