package callload

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/servetrace/servetrace/bench/internal/benchtest"
)

func TestMain(m *testing.M) {
	benchtest.Main(Roles)
	os.Exit(m.Run())
}

// TestScenes runs short turns of every row. A wrong answer is an error.
func TestScenes(t *testing.T) {
	t.Setenv("TMPDIR", benchtest.Bin(t))
	for _, s := range scenes {
		t.Run(s.Name, func(t *testing.T) {
			const moment = 20 * time.Millisecond
			s.turns = turns{n: 2, length: moment, warmUp: moment}
			round, err := s.run(t.Context(), s.Rows)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range s.Rows {
				for _, metric := range []string{calls, cpu, allocs, p50, p99} {
					if value := round.Get(name, metric); !(value > 0) {
						t.Errorf("%s: %s = %v", name, metric, value)
					}
				}
			}
		})
	}
}

// TestTurnCountsCalls: each call is counted and has a time, and the fault of a call ends the
// turn.
func TestTurnCountsCalls(t *testing.T) {
	var r record
	var ran atomic.Uint64
	for range 2 {
		if err := r.turn(10*time.Millisecond, 3, func(uint64) error { ran.Add(1); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if m := r.made(); m.Calls < 6 || m.Calls != ran.Load() || m.Took < 20*time.Millisecond || m.P99 < m.P50 {
		t.Errorf("%+v of %d calls", m, ran.Load())
	}
	wrong := errors.New("wrong answer")
	if err := r.turn(time.Hour, 3, func(uint64) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("error %v, want %v", err, wrong)
	}
	if err := checked([]byte("something else"), nil); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("a wrong answer: %v", err)
	}
}

func TestClaimsHaveTheirRows(t *testing.T) {
	benchtest.CheckClaims(t, Shapes(), cpu, p99)
}
