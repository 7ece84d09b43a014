package suite

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// options returns the options of a run on an idle machine.
func options(repeats int) Options {
	gate := newGate(0, 0)
	gate.Look = time.Nanosecond
	return Options{Repeats: repeats, Gate: gate, Env: &Env{}, Log: slog.New(slog.DiscardHandler)}
}

// recorded returns a case that records its row and measures one figure.
func recorded(shape, row string, ran *[]string, values ...float64) Case {
	n := 0
	return Case{Suite: "s", Shape: shape, Row: row, Run: func(context.Context, *Env) (Sample, error) {
		*ran = append(*ran, row)
		n++
		return Sample{CPU: values[(n-1)%len(values)]}, nil
	}}
}

func TestRowsTakeTurns(t *testing.T) {
	var ran []string
	set := Set{Cases: []Case{
		recorded("one", "a", &ran, 1), recorded("one", "b", &ran, 1), recorded("two", "x", &ran, 1), recorded("one", "c", &ran, 1),
	}}
	results, err := Run(t.Context(), set, options(3))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a", "b", "c", "b", "c", "a", "c", "a", "b", "x", "x", "x"}
	if diff := cmp.Diff(want, ran); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if n := len(results.Shapes[0].Rounds()); n != 3 {
		t.Errorf("%d rounds, want 3", n)
	}
}

// TestClaimIsOfRounds has rounds whose ratio of medians would be 1.
func TestClaimIsOfRounds(t *testing.T) {
	var ran []string
	set := Set{
		Cases: []Case{recorded("one", "ours", &ran, 10, 40, 20), recorded("one", "theirs", &ran, 20, 20, 40)},
		Claims: []Claim{
			{Name: "half", Suite: "s", Shape: "one", Target: 0.6, Stretch: 0.5, Value: func(r Round) (float64, bool) { return r.Ratio(CPU, "ours", "theirs") }},
			{Name: "of a missing row", Suite: "s", Shape: "one", Value: func(r Round) (float64, bool) { return r.Ratio(CPU, "ours", "missing") }},
			{Name: "of a shape that did not run", Suite: "s", Shape: "other", Value: func(Round) (float64, bool) { return 1, true }},
		},
	}
	results, err := Run(t.Context(), set, options(3))
	if err != nil {
		t.Fatal(err)
	}
	if len(results.Claims) != 1 {
		t.Fatalf("%d claims, want 1", len(results.Claims))
	}
	got := results.Claims[0]
	if want := (measure.Summary{Median: 0.5, Middle: 0.5, Min: 0.5, Max: 2, N: 3}); got.Value != want {
		t.Errorf("got %+v, want %+v", got.Value, want)
	}
	if got.Verdict() != Stretched {
		t.Errorf("verdict %q", got.Verdict())
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		target, stretch, value float64
		want                   Verdict
	}{
		{0.6, 0.4, 0.4, Stretched}, {0.6, 0.4, 0.41, Met}, {0.6, 0.4, 0.6, Met}, {0.6, 0.4, 0.61, Missed},
		{0, 0, 0, Met}, {0, 0, 1, Missed}, {0.6, 0, 0.1, Met},
	} {
		r := ClaimResult{Target: c.target, Stretch: c.stretch, Value: measure.Summary{Middle: c.value}}
		if got := r.Verdict(); got != c.want {
			t.Errorf("%v against %v and %v: %q, want %q", c.value, c.target, c.stretch, got, c.want)
		}
	}
}

func TestRatioAbove(t *testing.T) {
	r := Round{"floor": {CPU: 10}, "ours": {CPU: 14}, "theirs": {CPU: 18}, "cheap": {CPU: 9}}
	for _, c := range []struct {
		row, of string
		want    float64
		ok      bool
	}{
		{"ours", "theirs", 0.5, true},
		{"cheap", "theirs", 0, true}, // below the floor is noise
		{"ours", "cheap", 0, false},  // nothing to divide by
		{"missing", "theirs", 0, false},
	} {
		if got, ok := r.RatioAbove("floor", CPU, c.row, CPU, c.of); ok != c.ok || ok && got != c.want {
			t.Errorf("%s to %s: %v, %v, want %v, %v", c.row, c.of, got, ok, c.want, c.ok)
		}
	}
}

func TestCaseThatFails(t *testing.T) {
	calls := 0
	failing := func(until int) Case {
		calls = 0
		return Case{Suite: "s", Shape: "one", Row: "a", Run: func(context.Context, *Env) (Sample, error) {
			if calls++; calls <= until {
				return nil, errors.New("12 spans are missing")
			}
			return Sample{CPU: 1}, nil
		}}
	}
	o := options(1)
	last, err := Run(t.Context(), Set{Cases: []Case{failing(tries - 1)}}, o)
	if err != nil || last.Failed() {
		t.Errorf("a case that succeeds at the last try: failed %v, error %v", last.Failed(), err)
	}
	never, err := Run(t.Context(), Set{Cases: []Case{failing(tries)}}, o)
	if err != nil || !never.Failed() {
		t.Fatalf("a case that fails at each: error %v", err)
	}
	want := RowResults{Row: "a", Repeats: []Sample{nil}, Errors: []string{"repeat 1: 12 spans are missing"}}
	if diff := cmp.Diff(want, never.Shapes[0].Rows[0]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]Round{{}}, never.Shapes[0].Rounds()); diff != "" {
		t.Errorf("its round (-want +got)\n%s", diff)
	}
}

func TestMetricsOutsideTheVocabularyAreRefused(t *testing.T) {
	for _, sample := range []Sample{{"speed": 1}, {}} {
		o := options(1)
		c := Case{Suite: "s", Shape: "one", Row: "a", Run: func(context.Context, *Env) (Sample, error) { return sample, nil }}
		if results, err := Run(t.Context(), Set{Cases: []Case{c}}, o); err != nil || !results.Failed() {
			t.Errorf("%v was taken, error %v", sample, err)
		}
	}
}

func TestBusyMachineEndsTheRun(t *testing.T) {
	o := options(3)
	var used time.Duration
	o.Gate.Others = func() (time.Duration, error) { used += time.Hour; return used, nil }
	var ran []string
	_, err := Run(t.Context(), Set{Cases: []Case{recorded("one", "a", &ran, 1)}}, o)
	var busy *BusyError
	if !errors.As(err, &busy) || len(ran) != 0 {
		t.Errorf("ran %v, error %v, want *BusyError", ran, err)
	}
}

// TestEndOfContextEndsTheRun ends the context during a case, and just after it.
func TestEndOfContextEndsTheRun(t *testing.T) {
	for _, after := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		ran := 0
		set := Set{Cases: []Case{{Suite: "s", Shape: "one", Row: "a", Run: func(context.Context, *Env) (Sample, error) {
			if ran++; ran == 2 && !after {
				cancel()
			}
			return Sample{CPU: 1}, nil
		}}}}
		o := options(3)
		o.Gate.Others = func() (time.Duration, error) {
			if ran == 2 {
				cancel()
			}
			return 0, nil
		}
		if results, err := Run(ctx, set, o); results != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("after %t: got %v, %v, want %v", after, results, err, context.Canceled)
		}
		if ran != 2 {
			t.Errorf("after %t: %d cases ran, want 2", after, ran)
		}
		cancel()
	}
}

func TestSelect(t *testing.T) {
	cases := []Case{{Suite: "a", Shape: "x", Row: "1", Quick: true}, {Suite: "a", Shape: "y", Row: "2"}, {Suite: "b", Shape: "x", Row: "2", Quick: true}}
	names := func(o Options) (list []string) {
		for _, c := range o.Select(cases) {
			list = append(list, c.Suite+c.Shape+c.Row)
		}
		return list
	}
	for _, c := range []struct {
		o    Options
		want []string
	}{
		{Options{}, []string{"ax1", "ay2", "bx2"}},
		{Options{Quick: true}, []string{"ax1", "bx2"}},
		{Options{Suite: regexp.MustCompile("^a$")}, []string{"ax1", "ay2"}},
		{Options{Shape: regexp.MustCompile("x"), Row: regexp.MustCompile("2")}, []string{"bx2"}},
	} {
		if diff := cmp.Diff(c.want, names(c.o)); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", c.o, diff)
		}
	}
}

func TestRepeats(t *testing.T) {
	cases := []Case{{Repeats: 4}, {}}
	for _, c := range []struct {
		o    Options
		want int
	}{
		{Options{}, 4}, {Options{Quick: true}, 3}, {Options{Repeats: 9}, 9},
	} {
		if got := c.o.repeats(cases); got != c.want {
			t.Errorf("%d repeats, want %d", got, c.want)
		}
	}
}

// TestCheck checks that a claim holds once it was within its bound, and that only
// shapes with a claim that does not hold run again.
func TestCheck(t *testing.T) {
	var ran []string
	claim := func(shape string, gated bool) Claim {
		return Claim{Name: shape, Suite: "s", Shape: shape, Target: 10, Gated: gated, Value: func(r Round) (float64, bool) { return r.Get(shape, CPU) }}
	}
	set := Set{
		Cases: []Case{
			recorded("good", "good", &ran, 14), recorded("noisy", "noisy", &ran, 40, 12), recorded("dear", "dear", &ran, 40, 16, 18),
			recorded("free", "free", &ran, 99),
		},
		Claims: []Claim{claim("good", true), claim("noisy", true), claim("dear", true), claim("free", false)},
	}
	held, err := Check(t.Context(), set, options(3), 3)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"good", "noisy", "dear", "noisy", "dear", "dear"}, ran); diff != "" {
		t.Errorf("ran (-want +got)\n%s", diff)
	}
	for i, want := range []struct {
		best   float64
		rounds int
		ok     bool
	}{{14, 1, true}, {12, 2, true}, {16, 3, false}} {
		if h := held[i]; h.Best != want.best || h.Rounds != want.rounds || h.OK() != want.ok {
			t.Errorf("%s: best %v of %d, %v, want %+v", h.Claim.Name, h.Best, h.Rounds, h.OK(), want)
		}
	}
	if len(held) != 3 {
		t.Errorf("%d claims, want 3: the last is not gated", len(held))
	}
	if h := (Held{Claim: Claim{Target: 1}}); h.OK() {
		t.Error("a claim that was never computed is held")
	}
	if h := (Held{Claim: Claim{Target: 1, Gate: 3}, Best: 3, Rounds: 1}); !h.OK() {
		t.Error("the claim's own bound does not count")
	}
}
