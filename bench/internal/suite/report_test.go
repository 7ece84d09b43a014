package suite

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

var update = flag.Bool("update", false, "write the golden files again")

// sample returns the results of a run.
func sample() *Results {
	row := func(name string, host, plugin float64) RowResults {
		r := RowResults{Row: name, Doc: "a row"}
		for _, drift := range []float64{1, 0.9, 1.2} {
			s := Sample{Of(CPU, "host"): host * drift, Of(CPU, "total"): (host + plugin) * drift, Foreign: 0.01, Allocs: 6}
			if plugin > 0 {
				s[Of(CPU, "plugin")] = plugin * drift
			}
			r.Repeats = append(r.Repeats, s)
		}
		return r
	}
	failed := row("naive <plugin>", 7000, 9000)
	failed.Repeats[1], failed.Errors = nil, []string{"repeat 2: 12 spans are missing:\nbooks say so"}
	r := &Results{
		Began: time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC), Took: 90 * time.Second, Commit: "0123abc", ForeignLimit: 0.25, Discarded: 2,
		Machine:  measure.Machine{CPUs: 2, Model: "A processor", Memory: 8 << 30, Kernel: "Linux 6.18", Go: "go1.26.8 linux/amd64"},
		Versions: map[string]string{"go.opentelemetry.io/otel/sdk": "v1.47.0"},
		Shapes: []ShapeResults{
			{Suite: "spanpath", Shape: "saturated", Rows: []RowResults{row("SDK floor", 2000, 0), row("BSP + otlptracehttp", 6600, 0), row("ours", 3400, 700), failed}},
			{Suite: "spanpath", Shape: "slow sink", Rows: []RowResults{{Row: "ours", Repeats: []Sample{{Of(Spans, "lost"): 0, Of(Spans, "ended"): 64000}}}}},
		},
	}
	total := Of(CPU, "total")
	r.Judge([]Claim{
		{Name: "above floor", Suite: "spanpath", Shape: "saturated", Target: 0.6, Stretch: 0.4, Unit: "×", Value: func(r Round) (float64, bool) {
			return r.RatioAbove("SDK floor", total, "ours", total, "BSP + otlptracehttp")
		}},
		{Name: "of the naive plugin", Suite: "spanpath", Shape: "saturated", Target: 0.2, Unit: "×", Value: func(r Round) (float64, bool) {
			return r.Ratio(total, "ours", "naive <plugin>")
		}},
		{Name: "spans lost", Suite: "spanpath", Shape: "slow sink", Value: func(r Round) (float64, bool) { return r.Get("ours", Of(Spans, "lost")) }},
	})
	return r
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	if err := sample().Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{JSONFile, MarkdownFile} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got), -update writes it again\n%s", name, diff)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	read := &Results{}
	if err := json.Unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), read); diff != "" {
		t.Errorf("read again (-want +got)\n%s", diff)
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
