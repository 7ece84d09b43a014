package spanpath

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/bench/internal/benchtest"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
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
func measureOnce(t *testing.T, o order, row row, shape shape) (sample suite.Sample, err error) {
	t.Helper()
	err = measureRow(t.Context(), o, row, shape, func(measure func() (suite.Sample, error)) (err error) {
		sample, err = measure()
		return err
	})
	return sample, err
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
	} {
		t.Run(c.row, func(t *testing.T) {
			c.shape.length = length
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

// TestProcessorIsMeasured checks that a processor plugin is in the figures.
func TestProcessorIsMeasured(t *testing.T) {
	sample, err := measureOnce(t, newOrder(t, rowPatch), row{open: oursAnd(processorBench, pluginOTLP)}, shape{drive: saturate, Shape: suite.Shape{Name: "test"}, length: length})
	if err != nil {
		t.Fatal(err)
	}
	if own, all := sample[cpuOf("processor")], sample[cpuTotal]; own <= 0 || all < own+sample[cpuOf("plugin")]+sample[cpuHost]-1 {
		t.Errorf("the processor takes %v ns of %v ns", own, all)
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

func TestKilledPluginLosesNothing(t *testing.T) {
	sample, err := measureOnce(t, newOrder(t, rowOurs), rows[rowOurs], shape{drive: paced(2, 2000), length: 10 * length, lossy: true, kill: true})
	if err != nil || sample[lost] != 0 || sample[rate] == 0 {
		t.Errorf("%v, %v", sample, err)
	}
}

func TestChildSpeaksJSON(t *testing.T) {
	var out strings.Builder
	if err := runOrder(nil, strings.NewReader(`{"Row":"`+rowEncode+`","Shape":"`+shapeEncode+`"} true true`), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 4 || lines[0] != "true" {
		t.Fatalf("answers %q", lines)
	}
	for _, line := range lines[1:3] {
		var sample suite.Sample
		if err := json.Unmarshal([]byte(line), &sample); err != nil || sample[encode] <= 0 {
			t.Errorf("%v, %v", sample, err)
		}
	}
	for _, bad := range []string{"", `{"Row":"none","Shape":"saturated"}`, `{"Row":"ours","Shape":"nowhere"}`} {
		if err := runOrder(nil, strings.NewReader(bad), new(strings.Builder)); err == nil {
			t.Errorf("order %q was accepted", bad)
		}
	}
}

// TestRowsAlternate runs two rows in three turns each.
func TestRowsAlternate(t *testing.T) {
	into, err := sink.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = into.Close() }()
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.Name == shapePaced })
	s := shapes[i]
	s.turns = 3
	round, err := s.run(t.Context(), &suite.Env{Bin: benchtest.Bin(t), Sink: into}, []string{rowFloor, rowOurs})
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
}

func TestAddTurn(t *testing.T) {
	var sum suite.Sample
	for _, turn := range []suite.Sample{{cpuTotal: 100, pluginRSS: 20}, {cpuTotal: 300, pluginRSS: 22}} {
		sum = addTurn(sum, turn, 2)
	}
	if sum[cpuTotal] != 200 || sum[pluginRSS] != 22 {
		t.Errorf("%v, want the mean CPU and the highest RSS", sum)
	}
}

func TestClaimsHaveTheirRows(t *testing.T) {
	benchtest.CheckClaims(t, Shapes(), cpuHost, cpuTotal, cpuOf(pluginOTLP), cpuOf(pluginThird), heapBytes, allocs, encode, onEndP50, onEndP99, pluginRSS, lost, cpuRelay)
}
