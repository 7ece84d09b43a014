package pluginsdk

import (
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// gear is a processors whose use of CPU a test sets, and what it chose. The mutex
// of the former guards what the latter adds.
type gear struct {
	*processors
	share float64 // of one processor, from since on
	since time.Time
	used  time.Duration
	chose []bool
}

func newGear() *gear {
	g := &gear{since: time.Now()}
	g.processors = newProcessors(g.burnt, func(many bool) { g.chose = append(g.chose, many) })
	return g
}

// burnt is the CPU used so far. The clock of a bubble stands while anything runs.
func (g *gear) burnt() time.Duration {
	return g.used + time.Duration(g.share*float64(time.Since(g.since)))
}

// load is another share from now on.
func (g *gear) load(share float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used, g.since, g.share = g.burnt(), time.Now(), share
}

func (g *gear) want(t *testing.T, chose ...bool) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.chose, chose) {
		t.Errorf("chose many %v, want %v", g.chose, chose)
	}
}

// TestProcessorsFollowLoad: one until it is busy, all until it has been calm for
// a second.
func TestProcessorsFollowLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGear()
		for _, step := range []struct {
			load  float64
			calls int // one after the other, 10 ms each
			chose []bool
		}{
			{0.4, 100, []bool{false}},
			{0.7, 30, []bool{false, true}},
			{0.4, 300, []bool{false, true}}, // neither busy nor calm
			{0.1, 90, []bool{false, true}},
			{0.1, 40, []bool{false, true, false}},
		} {
			g.load(step.load)
			for range step.calls {
				ended := g.call()
				time.Sleep(10 * time.Millisecond)
				ended()
			}
			g.want(t, step.chose...)
		}
	})
}

// TestProcessorsDuringCall: a call that lasts and has much to do gets all
// processors before it ends, one that waits does not.
func TestProcessorsDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGear()
		ended := g.call()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		g.want(t, false)
		g.load(1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		g.want(t, false, true)
		ended()
		g.load(0)
		time.Sleep(time.Hour) // nobody looks
		synctest.Wait()
		g.want(t, false, true)
	})
}

// TestNoProcessors: where the operator has chosen, calls cost nothing.
func TestNoProcessors(t *testing.T) {
	for _, environ := range [][]string{{"GOMAXPROCS=2", "GOGC=100"}, {"GOMAXPROCS=1", "GOMEMLIMIT=64MiB"}} {
		p := frugal(Env{Environ: environ})
		if p != nil || ballast != nil {
			t.Errorf("%v: processors %v, ballast of %d bytes, want none", environ, p, len(ballast))
		}
		p.call()()
	}
}

// TestOwnGOMAXPROCSStays: what the plugin's code has set before Main is its choice.
func TestOwnGOMAXPROCSStays(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runtime.SetDefaultGOMAXPROCS()
	own := runtime.GOMAXPROCS(0) + 2
	runtime.GOMAXPROCS(own)
	if p := frugal(Env{Environ: []string{"GOGC=100"}}); p != nil || runtime.GOMAXPROCS(0) != own {
		t.Errorf("processors %v, GOMAXPROCS %d, want none and %d", p, runtime.GOMAXPROCS(0), own)
	}
}

// TestOwnCollectorStays: so is what it has set of the collector.
func TestOwnCollectorStays(t *testing.T) {
	check := func(t *testing.T) {
		t.Helper()
		if frugal(Env{Environ: []string{"GOMAXPROCS=2"}}); ballast != nil {
			t.Errorf("ballast of %d bytes, want none", len(ballast))
		}
	}
	t.Run("limit", func(t *testing.T) {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 40))
		check(t)
	})
	t.Run("percent", func(t *testing.T) {
		defer debug.SetGCPercent(debug.SetGCPercent(150))
		check(t)
		if now := debug.SetGCPercent(150); now != 150 {
			t.Errorf("GOGC is %d, want 150", now)
		}
	})
}
