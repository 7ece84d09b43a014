package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host"
)

// newResult returns the result of a soak with steady memory, after changes.
func newResult(change func(r *Result), memory func(s *sample)) *Result {
	r := &Result{
		Taken: 90, Recovered: time.Second,
		Account: host.Stats{
			Ended: 100, Accepted: 100,
			Exporters: []host.ExporterStats{{Accepted: 100, Delivered: 90, Dropped: map[string]uint64{"queue_full": 10}, Starts: 1}},
		},
	}
	for i := range 120 {
		s := sample{At: time.Duration(i) * 30 * time.Second, Down: true, HostRSS: 70 * mib, Heap: 30 * mib, Queue: 25 * mib, PluginRSS: 20 * mib, PluginAnon: 8 * mib, Goroutines: 30}
		// A sawtooth, because of the garbage collector.
		s.HostRSS += int64(i%7) * mib
		s.PluginAnon += int64(i%5) * mib / 4
		memory(&s)
		r.Samples = append(r.Samples, s)
	}
	change(r)
	r.judge()
	return r
}

func TestJudge(t *testing.T) {
	steady, whole := func(*sample) {}, func(*Result) {}
	for _, test := range []struct {
		name   string
		result *Result
		fails  string // the beginning of the failed finding's name, or empty
	}{
		{"steady", newResult(whole, steady), ""},
		{"grows at first", newResult(whole, func(s *sample) { s.HostRSS = min(s.HostRSS, int64(s.At/time.Second)*mib) }), ""},
		{"leaks", newResult(whole, func(s *sample) { s.PluginRSS += int64(s.At/time.Second) * mib / 400 }), "plugin, RSS"},
		{"too much", newResult(whole, func(s *sample) { s.Queue += 8 * mib }), "host, queue"},
		{"goroutines", newResult(whole, func(s *sample) { s.Goroutines += int64(s.At / time.Minute) }), "host, goroutines"},
		{"restarted plugin", newResult(func(r *Result) { r.Account.Exporters[0].Starts = 2 }, steady), "the plugin"},
		{"unknown span", newResult(func(r *Result) { r.Taken++ }, steady), "the sink's count"},
		{"no delivery", newResult(func(r *Result) { r.Recovered = 0 }, steady), "delivered again"},
		{"no samples", newResult(func(r *Result) { r.Samples = nil }, steady), "samples"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var failed []string
			for _, f := range test.result.Findings {
				if !f.OK {
					failed = append(failed, f.Name+": "+f.Found)
				}
			}
			if test.fails == "" && len(failed) > 0 || test.fails != "" && (len(failed) != 1 || !strings.HasPrefix(failed[0], test.fails)) {
				t.Errorf("failed: %q, want %q", failed, test.fails)
			}
			if test.result.OK() != (test.fails == "") {
				t.Errorf("OK is %v", test.result.OK())
			}
			var text strings.Builder
			if err := test.result.Write(&text); err != nil || strings.Contains(text.String(), "| **FAILED** |\n") != (test.fails != "") {
				t.Errorf("%v\n%s", err, &text)
			}
		})
	}
}
