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

func TestEverySpanIsDelivered(t *testing.T) {
	for _, c := range []struct {
		row   string
		shape shape
	}{
		{rowFloor, shape{drive: saturate()}},
		{rowBSPHTTP, shape{drive: saturate()}},
		{rowBSPGzip, shape{drive: paced(2, 2000)}},
		{rowBSPGRPC, shape{drive: pulsed(8, 5*time.Millisecond), timed: true}},
		{rowOurs, shape{drive: saturate()}},
		{rowOurs, shape{drive: pulsed(1, 5*time.Millisecond), timed: true}},
		{rowOurs, shape{drive: bursts(40, time.Millisecond)}},
		{rowOursGzip, shape{drive: paced(1, 2000)}},
	} {
		t.Run(c.row, func(t *testing.T) {
			c.shape.length = length
			r, err := findRow(c.row)
			if err != nil {
				t.Fatal(err)
			}
			sample, err := measureRow(t.Context(), newOrder(t, c.row), r, c.shape)
			if err != nil {
				t.Fatal(err)
			}
			ended, delivered := sample[suite.Of(suite.Spans, "ended")], sample[suite.Of(suite.Spans, "delivered")]
			if ended == 0 || delivered != ended || sample[suite.Of(suite.Spans, "lost")] != 0 {
				t.Errorf("%v ended, %v delivered", ended, delivered)
			}
			want := []string{suite.Of(suite.CPU, "host"), suite.Of(suite.CPU, "total"), suite.Rate, suite.Of(suite.Call, "p99")}
			if c.row == rowOurs || c.row == rowOursGzip {
				want = append(want, suite.Of(suite.CPU, "plugin"), suite.Of(suite.PeakRSS, "plugin"))
			}
			if c.shape.timed {
				want = append(want, suite.Of(suite.OnEnd, "p50"))
			} else { // the few spans of a timed shape may all be in unreported caches
				want = append(want, suite.Bytes, suite.Allocs)
			}
			for _, metric := range want {
				if sample[metric] <= 0 {
					t.Errorf("%s is %v", metric, sample[metric])
				}
			}
			for metric := range sample {
				if !suite.Known(metric) {
					t.Errorf("metric %q is not of the vocabulary", metric)
				}
			}
		})
	}
}

// TestMissingSpansAreAnError checks a row that loses spans, in a shape that may not
// and in a shape that may.
func TestMissingSpansAreAnError(t *testing.T) {
	loser := row{name: "loser", open: func(context.Context, order) (*way, error) { return sdkWay(nothing{}), nil }}
	_, err := measureRow(t.Context(), newOrder(t, loser.name), loser, shape{drive: paced(1, 1000), length: length})
	if err == nil || !strings.Contains(err.Error(), "their cost is unknown") {
		t.Errorf("error %v", err)
	}
	sample, err := measureRow(t.Context(), newOrder(t, loser.name), loser, shape{drive: paced(1, 1000), length: length, lossy: true})
	if err != nil || sample[suite.Of(suite.Spans, "lost")] == 0 || sample[suite.Of(suite.Spans, "delivered")] != 0 {
		t.Errorf("lossy: %v, %v", sample, err)
	}
}

func TestKilledPluginLosesNothing(t *testing.T) {
	r, err := findRow(rowOurs)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := measureRow(t.Context(), newOrder(t, rowOurs), r, shape{drive: paced(2, 2000), length: 10 * length, lossy: true, kill: true})
	if err != nil || sample[suite.Of(suite.Spans, "lost")] != 0 || sample[suite.Of(suite.Spans, "ended")] == 0 {
		t.Errorf("%v, %v", sample, err)
	}
}

func TestChildSpeaksJSON(t *testing.T) {
	for _, row := range []string{rowEncode, rowEncodeSDK} {
		in, err := json.Marshal(order{Row: row, Shape: shapeEncode})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := runCase(t.Context(), nil, strings.NewReader(string(in)), &out); err != nil {
			t.Fatal(err)
		}
		var sample suite.Sample
		if err := json.Unmarshal([]byte(out.String()), &sample); err != nil || sample[suite.Encode] <= 0 {
			t.Errorf("%s: %v, %v", row, sample, err)
		}
	}
	for _, bad := range []string{"", `{"row":"none","shape":"saturated"}`, `{"row":"ours","shape":"nowhere"}`, `{"row":"ours","shape":"` + shapeEncode + `"}`} {
		if err := runCase(t.Context(), nil, strings.NewReader(bad), new(strings.Builder)); err == nil {
			t.Errorf("order %q was accepted", bad)
		}
	}
}

func TestShapesAreComplete(t *testing.T) {
	for _, s := range shapes {
		for _, name := range slices.Concat(s.rows, s.quick) {
			if _, err := findRow(name); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
		if s.doc == "" || s.length == 0 || s.drive == nil || s.repeats == 0 {
			t.Errorf("%s: incomplete", s.name)
		}
	}
}
