package spanpath

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/bench/internal/benchtest"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/host"
)

func TestMain(m *testing.M) {
	benchtest.Main(sink.Roles, Roles)
	os.Exit(m.Run())
}

func newOrder(t *testing.T, row string) order {
	t.Helper()
	s, err := sink.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return order{Row: row, Shape: "test", Bin: benchtest.Bin(t), Sink: s.Addresses}
}

// length is the time of a load in tests, which do not use the figures.
const length = 50 * time.Millisecond

// measureOnce measures a row in one turn.
func measureOnce(t *testing.T, o order, row row, shape shape) (suite.Sample, error) {
	t.Helper()
	m, err := open(t.Context(), o, row, shape)
	if err != nil {
		return nil, err
	}
	sample, err := m.measure(t.Context())
	return sample, errors.Join(err, m.close(t.Context()))
}

func TestEverySpanIsDelivered(t *testing.T) {
	for _, c := range []struct {
		row     string
		shape   shape
		metrics []string
	}{
		{rowFloor, shape{drive: saturate}, []string{heapBytes, allocs}},
		{rowBSPHTTP, shape{drive: saturate}, []string{heapBytes, allocs}},
		{rowBSPGzip, shape{drive: paced(2, 2000)}, nil},
		{rowBSPGRPC, shape{drive: pulsed(5 * time.Millisecond), timed: true}, []string{onEndP50, onEndP99}},
		{rowOurs, shape{drive: saturate}, []string{cpuOf("plugin"), pluginRSS, allocs}},
		{rowOurs, shape{drive: pulsed(5 * time.Millisecond), timed: true}, []string{onEndP50, onEndP99}},
		{rowOurs, shape{drive: bursts(40, time.Millisecond)}, []string{cpuOf("plugin")}},
		{rowOursGzip, shape{drive: paced(1, 2000)}, []string{cpuOf("plugin")}},
		{rowOursBoth, shape{drive: paced(1, 2000)}, []string{cpuOf(pluginOTLP), cpuOf(pluginThird)}},
		{rowOurs, shape{drive: paced(2, 2000), length: 10 * length, lossy: true, kill: true}, nil},
		{rowPatch, shape{drive: saturate}, []string{cpuOf("processor"), cpuOf("plugin")}},
	} {
		t.Run(c.row, func(t *testing.T) {
			c.shape.length = max(length, c.shape.length)
			sample, err := measureOnce(t, newOrder(t, c.row), rows[c.row], c.shape)
			if err != nil {
				t.Fatal(err)
			}
			for _, metric := range append(c.metrics, cpuHost, cpuTotal, rate) {
				if sample[metric] <= 0 {
					t.Errorf("%s is %v", metric, sample[metric])
				}
			}
			if sample[lost] != 0 {
				t.Errorf("%v lost", sample[lost])
			}
		})
	}
}

// TestMissingSpansAreAnError checks a row that loses spans, in a shape that may not
// and in a shape that may.
func TestMissingSpansAreAnError(t *testing.T) {
	loser := row{open: func(context.Context, order) (*way, error) { return sdkWay(nothing{}), nil }}
	_, err := measureOnce(t, newOrder(t, "loser"), loser, shape{drive: paced(1, 1000), length: length})
	if err == nil || !strings.Contains(err.Error(), "their cost is unknown") {
		t.Errorf("error %v", err)
	}
	sample, err := measureOnce(t, newOrder(t, "loser"), loser, shape{drive: paced(1, 1000), length: length, lossy: true})
	if err != nil || sample[lost] == 0 || sample[rate] != 0 {
		t.Errorf("lossy: %v, %v", sample, err)
	}
}

// TestOrderIsChecked has orders that are no JSON, and that name no row or shape.
func TestOrderIsChecked(t *testing.T) {
	for _, bad := range []string{"", `{"Row":"none","Shape":"saturated"}`, `{"Row":"ours","Shape":"nowhere"}`} {
		if err := runOrder([]string{bad}, strings.NewReader(""), new(strings.Builder)); err == nil {
			t.Errorf("order %q was accepted", bad)
		}
	}
}

// TestShapesHaveProcesses runs two rows in three turns each, and the encoders.
func TestShapesHaveProcesses(t *testing.T) {
	into, err := sink.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = into.Close() }()
	env := &suite.Env{Bin: benchtest.Bin(t), Sink: into}
	encoded, err := shape{Shape: suite.Shape{Name: shapeEncode}}.run(t.Context(), env, encoders)
	if err != nil || encoded[rowEncode][encode] <= 0 || encoded[rowEncodeSDK][encode] <= 0 {
		t.Errorf("%v, %v", encoded, err)
	}
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.Name == shapePaced })
	s := shapes[i]
	s.turns = 3
	round, err := s.run(t.Context(), env, []string{rowFloor, rowOurs})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{rowFloor, rowOurs} {
		if got := round[row]; got[cpuTotal] <= 0 || got[rate] > 40_000 || got[rate] < 1000 {
			t.Errorf("%s: %v", row, got)
		}
	}
	if taken, err := into.Spans(t.Context()); err != nil || taken == 0 {
		t.Errorf("the sink has %d spans, %v", taken, err)
	}
	var skipped suite.SkippedError
	if _, err := s.run(t.Context(), &suite.Env{Sink: into}, []string{rowCollector}); !errors.As(err, &skipped) || !strings.Contains(err.Error(), "make peers PEERS=otelcol") {
		t.Errorf("without a Collector: error %v, want a hint", err)
	}
}

func TestClaimsHaveTheirRows(t *testing.T) {
	benchtest.CheckClaims(t, Shapes(), cpuHost, cpuTotal, cpuOf(pluginOTLP), cpuOf(pluginThird), heapBytes, allocs, encode, onEndP50, onEndP99, pluginRSS, lost, cpuRelay)
}

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
