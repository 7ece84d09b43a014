package serveload

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// newEnv is a place for cases, with this test binary as every program.
func newEnv(t *testing.T) *suite.Env {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	into, err := sink.Start(t.Context(), self)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = into.Close() })
	dir, err := os.MkdirTemp("", "s") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugins := filepath.Join(dir, "plugins")
	if err := os.Mkdir(plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"otlp", "hung"} {
		if err := os.Link(self, filepath.Join(plugins, name)); err != nil {
			if err := os.Symlink(self, filepath.Join(plugins, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &suite.Env{Self: self, Bin: dir, Dir: dir, Sink: into, Log: slog.New(slog.DiscardHandler)}
}

// TestRows runs a short load on a row of every kind, with processes and all. A
// row whose spans do not all arrive, and an answer that is not the right one,
// would be an error.
func TestRows(t *testing.T) {
	env := newEnv(t)
	for _, s := range scenes {
		if s.load.fortio || s.load.rate > 0 {
			continue
		}
		const moment = 20 * time.Millisecond
		s.load.connections, s.load.warmUp, s.load.length = 2, moment, moment
		if s.inTurns() {
			s.turns = turns{n: 2, lead: moment, length: moment}
		}
		peers := []row{s.bareRow(), {name: s.otel, by: byOTel, ratio: "1"}, {name: s.proxy, by: byProxy}}
		for _, r := range append(peers, ourRows...) {
			if !slices.Contains(s.rows, r.name) || !slices.Contains([]string{s.bare, s.otel, s.proxy, rowOff, rowRatio0, rowRatio01, rowRatio1, rowHung, rowDead}, r.name) {
				continue
			}
			t.Run(s.name+"/"+r.name, func(t *testing.T) {
				sample, err := s.run(t.Context(), env, r)
				if err != nil {
					t.Fatal(err)
				}
				for _, metric := range []string{suite.Requests, suite.Of(suite.RequestCall, "p50"), suite.Of(suite.RequestCPU, "server")} {
					if sample[metric] <= 0 {
						t.Errorf("%s = %v", metric, sample[metric])
					}
				}
				if r.by == byProxy && sample[suite.Of(suite.RequestCPU, "backend")] <= 0 {
					t.Error("the server behind the proxy did nothing")
				}
				if s.inTurns() && sample[suite.Of(suite.RequestCPU, "reference")] <= 0 {
					t.Error("the server beside it did nothing")
				}
				for metric := range sample {
					if !suite.Known(metric) {
						t.Errorf("metric %q is not of the vocabulary", metric)
					}
				}
			})
		}
	}
}

// TestSetNamesRows: a row that is misspelt in a scene, or in a claim, would be
// missing without a word.
func TestSetNamesRows(t *testing.T) {
	set := Set()
	rows := map[string][]string{}
	for _, c := range set.Cases {
		rows[c.Shape] = append(rows[c.Shape], c.Row)
	}
	for _, s := range scenes {
		if len(rows[s.name]) != len(s.rows) {
			t.Errorf("%s: rows %q, of which there are %q", s.name, s.rows, rows[s.name])
		}
	}
	for _, c := range set.Claims {
		round := suite.Round{}
		for _, row := range rows[c.Shape] {
			round[row] = suite.Sample{suite.Requests: 1, suite.RequestAllocs: 1, suite.Of(suite.RequestCPU, "server"): 1}
			for _, metric := range []string{suite.Requests, suite.RequestAllocs, suite.RequestCPU} {
				round[row][suite.Of(metric, "reference")] = 1
			}
		}
		if _, computed := c.Value(round); !computed {
			t.Errorf("%s: %s can not be computed from all of its rows", c.Shape, c.Name)
		}
	}
}

// TestAudit: a figure whose spans were lost is none.
func TestAudit(t *testing.T) {
	s := scene{spans: 3}
	for name, c := range map[string]struct {
		row   row
		books books
		taken uint64
		fault string
	}{
		"all is well":        {row{ratio: "1"}, books{Ended: 30, Delivered: 30}, 30, ""},
		"some are sampled":   {row{ratio: "0.1"}, books{Ended: 3, Delivered: 3}, 3, ""},
		"not delivered":      {row{ratio: "1"}, books{Ended: 30, Delivered: 29}, 29, "spans were lost"},
		"not at the sink":    {row{ratio: "1"}, books{Ended: 30, Delivered: 30}, 29, "spans were lost"},
		"fewer than sampled": {row{ratio: "1"}, books{Ended: 27, Delivered: 27}, 27, "27 spans ended at ratio 1"},
		"of one span each":   {row{by: byOTel, ratio: "1"}, books{Ended: 10, Delivered: 10}, 10, ""},
		"none were due":      {row{ratio: "0"}, books{Ended: 3, Delivered: 3}, 3, "3 spans ended at ratio 0"},
		"more than can be":   {row{ratio: "0.1"}, books{Ended: 33, Delivered: 33}, 33, "33 spans ended at ratio 0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.audit(c.row, c.books, c.taken, 10)
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("got %v, want %q", err, c.fault)
			}
		})
	}
}
