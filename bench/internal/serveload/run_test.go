package serveload

import (
	"os"
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

// newEnv returns an environment of cases, in which this test binary is every program.
func newEnv(t *testing.T) *suite.Env {
	t.Helper()
	into, err := sink.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = into.Close() })
	bin := benchtest.Bin(t)
	t.Setenv("TMPDIR", bin)
	return &suite.Env{Bin: bin, Sink: into}
}

// TestRows runs a short load on rows of every kind. A lost span or a wrong answer is an
// error.
func TestRows(t *testing.T) {
	env := newEnv(t)
	for _, s := range scenes {
		const moment = 20 * time.Millisecond
		s.load.connections, s.load.warmUp, s.load.length = 2, moment, moment
		if s.inTurns() {
			s.turns = turns{n: 2, lead: moment, length: moment}
		}
		for _, name := range s.rows {
			if name == rowLogged || name == rowCrashing {
				continue
			}
			t.Run(s.name+"/"+name, func(t *testing.T) {
				sample, err := s.run(t.Context(), env, findRow(name))
				if err != nil {
					t.Fatal(err)
				}
				for _, metric := range []string{suite.Requests, suite.Of(suite.RequestCall, "p50"), suite.Of(suite.RequestCPU, "server")} {
					if sample[metric] <= 0 {
						t.Errorf("%s = %v", metric, sample[metric])
					}
					if s.inTurns() && metric != suite.Of(suite.RequestCall, "p50") && sample[reference(metric)] <= 0 {
						t.Errorf("%s = %v", reference(metric), sample[reference(metric)])
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
}

func TestAudit(t *testing.T) {
	at := func(ratio string, ended, delivered uint64) *contender {
		return &contender{row: row{name: "a row", ratio: ratio}, server: &serverChild{account: account{Ended: ended, Delivered: delivered}}, requests: 10}
	}
	broken := at("1", 30, 0)
	broken.row.broken = true
	for name, c := range map[string]struct {
		all   []*contender
		taken uint64
		fault string
	}{
		"all delivered":      {[]*contender{at("1", 30, 30)}, 30, ""},
		"two in turns":       {[]*contender{at("1", 30, 30), at("1", 30, 30)}, 60, ""},
		"some are sampled":   {[]*contender{at("0.1", 3, 3)}, 3, ""},
		"beside a broken":    {[]*contender{broken, at("1", 30, 30)}, 31, ""},
		"not delivered":      {[]*contender{at("1", 30, 29)}, 29, "spans were lost"},
		"not at the sink":    {[]*contender{at("1", 30, 30)}, 29, "spans were lost"},
		"fewer than sampled": {[]*contender{at("1", 27, 27)}, 27, `27 spans ended at ratio "1"`},
		"none were due":      {[]*contender{at("0", 3, 3)}, 3, `3 spans ended at ratio "0"`},
		"tracing is off":     {[]*contender{at("", 3, 3)}, 3, `3 spans ended at ratio ""`},
		"more than can be":   {[]*contender{at("0.1", 33, 33)}, 33, `33 spans ended at ratio "0.1"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := audit(c.all, c.taken)
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("got %v, want %q", err, c.fault)
			}
		})
	}
}
