package serveload

import (
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

// newEnv returns an environment, in which this test binary is every program.
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

// TestScenes runs short turns of every kind of row. A lost span or a wrong answer is an
// error.
func TestScenes(t *testing.T) {
	env := newEnv(t)
	for _, s := range scenes {
		t.Run(s.Name, func(t *testing.T) {
			const moment = 20 * time.Millisecond
			s.turns = turns{n: 2, lead: moment, length: moment, warmUp: moment}
			names := slices.DeleteFunc(slices.Clone(s.Rows), func(row string) bool { return row == rowLogged || row == rowCrashing })
			round, err := s.run(t.Context(), env, names)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				metrics := []string{requests, cpuServer}
				if rows[name].ratio == "1" && rows[name].by == byOurs && rows[name].broken == "" {
					metrics = append(metrics, cpuPlugin, cpuTotal)
				}
				for _, metric := range metrics {
					if value := round.Get(name, metric); !(value > 0) {
						t.Errorf("%s: %s = %v", name, metric, value)
					}
				}
			}
		})
	}
}

func TestAudit(t *testing.T) {
	at := func(ratio string, ended, delivered uint64) *contender {
		return &contender{name: "a row", row: row{ratio: ratio}, account: account{Ended: ended, Delivered: delivered}, requests: 10}
	}
	broken := at("1", 30, 0)
	broken.row.broken = "hung"
	for name, c := range map[string]struct {
		all   []*contender
		taken uint64
		fault string
	}{
		"two rows":           {[]*contender{at("1", 30, 30), at("1", 30, 30)}, 60, ""},
		"some are sampled":   {[]*contender{at("0.1", 3, 3)}, 3, ""},
		"beside a broken":    {[]*contender{broken, at("1", 30, 30)}, 31, ""},
		"not delivered":      {[]*contender{at("1", 30, 29)}, 29, "spans were lost"},
		"not at the sink":    {[]*contender{at("1", 30, 30)}, 29, "spans were lost"},
		"fewer than sampled": {[]*contender{at("1", 27, 27)}, 27, `27 spans ended at ratio "1"`},
		"none were due":      {[]*contender{at("0", 3, 3)}, 3, `3 spans ended at ratio "0"`},
		"tracing is off":     {[]*contender{at("", 3, 3)}, 3, `3 spans ended at ratio ""`},
		"more than can be":   {[]*contender{at("0.1", 33, 33)}, 33, `33 spans ended at ratio "0.1"`},
	} {
		err := audit(c.all, c.taken)
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: got %v, want %q", name, err, c.fault)
		}
	}
}

func TestClaimsHaveTheirRows(t *testing.T) {
	benchtest.CheckClaims(t, Shapes(), requests, cpuServer, cpuTotal, allocs)
}
