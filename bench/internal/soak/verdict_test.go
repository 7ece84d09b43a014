package soak

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host"
)

func TestTheilSen(t *testing.T) {
	for _, test := range []struct {
		name string
		x, y []float64
		want float64
	}{
		{"nothing", nil, nil, 0},
		{"one point", []float64{1}, []float64{5}, 0},
		{"flat", []float64{0, 1, 2, 3}, []float64{4, 4, 4, 4}, 0},
		{"a line", []float64{0, 1, 2, 3}, []float64{1, 3, 5, 7}, 2},
		{"a line with an outlier", []float64{0, 1, 2, 3, 4, 5, 6}, []float64{0, 1, 2, 900, 4, 5, 6}, 1},
		{"the same moment twice", []float64{0, 0, 1}, []float64{3, 5, 4}, 0},
	} {
		if got := theilSen(test.x, test.y); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// soaked is the result of a soak of so long with memory as given.
func soaked(memory func(s *soakSample)) *Result {
	r := &Result{
		Taken: 90, Recovered: time.Second,
		Books: host.Stats{
			Ended: 100, Accepted: 100,
			Exporters: []host.ExporterStats{{Accepted: 100, Delivered: 90, Dropped: map[string]uint64{"queue_full": 10}, Starts: 1}},
		},
	}
	for i := range 120 {
		s := soakSample{At: time.Duration(i) * 30 * time.Second, Phase: phaseDown, HostRSS: 70 * mib, Heap: 30 * mib, Queue: 25 * mib, PluginRSS: 20 * mib, PluginAnon: 8 * mib, Goroutines: 30}
		// A sawtooth, as a collector makes it.
		s.HostRSS += int64(i%7) * mib
		s.PluginAnon += int64(i%5) * mib / 4
		memory(&s)
		r.Samples = append(r.Samples, s)
	}
	r.judge()
	return r
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name   string
		result *Result
		fails  string // the beginning of the one finding that fails; empty: none
	}{
		{"flat", soaked(func(*soakSample) {}), ""},
		{"grows at first", soaked(func(s *soakSample) {
			s.HostRSS = min(s.HostRSS, int64(s.At/time.Second)*mib)
		}), ""},
		{"leaks", soaked(func(s *soakSample) { s.PluginRSS += int64(s.At/time.Second) * mib / 400 }), "plugin, RSS"},
		{"is too much", soaked(func(s *soakSample) { s.Queue += 8 * mib }), "host, queue"},
		{"goroutines", soaked(func(s *soakSample) { s.Goroutines += int(s.At / time.Minute) }), "host, goroutines"},
		{"a plugin that was started again", func() *Result {
			r := soaked(func(*soakSample) {})
			r.Books.Exporters[0].Starts = 2
			r.judge()
			return r
		}(), "the plugin"},
		{"a span that nobody knows of", func() *Result {
			r := soaked(func(*soakSample) {})
			r.Taken++
			r.judge()
			return r
		}(), "the sink's count"},
		{"nothing was delivered again", func() *Result {
			r := soaked(func(*soakSample) {})
			r.Recovered = 0
			r.judge()
			return r
		}(), "delivered again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var failed []string
			for _, f := range test.result.Findings {
				if !f.OK {
					failed = append(failed, f.What+": "+f.Found)
				}
			}
			switch {
			case test.fails == "" && len(failed) > 0, test.fails != "" && (len(failed) != 1 || !strings.HasPrefix(failed[0], test.fails)):
				t.Errorf("failed: %q, want %q", failed, test.fails)
			case test.result.OK() != (test.fails == ""):
				t.Errorf("OK is %v", test.result.OK())
			}
		})
	}
}

func TestSoakWrite(t *testing.T) {
	r := Result{Soak: "1h at 5000 spans/s", Findings: []Finding{{What: "heap", Found: "3 MiB", OK: true}, {What: "RSS", Found: "900 MiB"}}}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	want := "# Soak: 1h at 5000 spans/s\n\n| | | |\n| --- | --- | --- |\n| heap | 3 MiB | ok |\n| RSS | 900 MiB | **FAILED** |\n"
	if got := text.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
