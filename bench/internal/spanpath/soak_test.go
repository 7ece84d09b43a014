package spanpath

import (
	"strings"
	"testing"

	"github.com/servetrace/servetrace/host"
)

// newResult returns the result of a soak with steady memory, after changes.
func newResult(change func(r *SoakResult), memory func(i float64, s soakSample)) *SoakResult {
	r := &SoakResult{
		taken: 90,
		account: host.Stats{
			Ended: 100, Accepted: 100,
			Exporters: []host.ExporterStats{{Accepted: 100, Delivered: 90, Dropped: map[string]uint64{"queue_full": 10}, Starts: 1}},
		},
	}
	for i := range 120 {
		// A sawtooth, because of the garbage collector.
		s := soakSample{soakHost: (70 + float64(i%7)) * mib, soakHeap: 30 * mib, soakQueue: 25 * mib, soakPlugin: (20 + float64(i%5)/4) * mib, soakGoroutines: 30}
		memory(float64(i), s)
		r.samples = append(r.samples, s)
	}
	change(r)
	return r
}

func TestSoakReport(t *testing.T) {
	steady, whole := func(float64, soakSample) {}, func(*SoakResult) {}
	for _, test := range []struct {
		name   string
		result *SoakResult
		fails  string // the beginning of the failed line, or empty
	}{
		{"steady", newResult(whole, steady), ""},
		{"leaks", newResult(whole, func(i float64, s soakSample) { s[soakPlugin] += i * mib / 30 }), "plugin, RSS"},
		{"too much", newResult(whole, func(_ float64, s soakSample) { s[soakQueue] += 8 * mib }), "host, queue"},
		{"goroutines", newResult(whole, func(i float64, s soakSample) { s[soakGoroutines] += i / 2 }), "host, goroutines"},
		{"restarted plugin", newResult(func(r *SoakResult) { r.account.Exporters[0].Starts = 2 }, steady), "the plugin"},
		{"unknown span", newResult(func(r *SoakResult) { r.taken++ }, steady), "the sink's count"},
		{"no delivery", newResult(func(r *SoakResult) { r.atReturn = 90 }, steady), "delivered again"},
		{"no samples", newResult(func(r *SoakResult) { r.samples = nil }, steady), "samples"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, ok := test.result.Report()
			var failed []string
			for line := range strings.Lines(text) {
				if strings.Contains(line, "**FAILED**") {
					failed = append(failed, line)
				}
			}
			if ok != (test.fails == "") || !ok && (len(failed) != 1 || !strings.HasPrefix(failed[0], "| "+test.fails)) {
				t.Errorf("OK is %v, failed: %q, want %q", ok, failed, test.fails)
			}
		})
	}
}
