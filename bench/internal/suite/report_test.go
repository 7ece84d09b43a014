package suite

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
		{Name: "above floor", Bound: 0.6, Goal: 0.4, Unit: "×", Value: ratio("ours", "BSP")},
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
