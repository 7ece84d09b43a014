package serveload

import (
	"slices"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// gate is what bench gate holds a scene to; zero: nothing. The allocations are
// those of the day that it was written, and room for what a batch of another
// size moves; they have no other target, for the issue sets none.
type gate struct {
	// cpu bounds the server's CPU a request with tracing off, to that of the bare
	// server.
	cpu float64
	// off, unsampled and sampled bound the allocations a request: with tracing off
	// beyond the bare server's, and at ratio 0 and 1 beyond off.
	off, unsampled, sampled float64
}

// claims are the budgets that issue 7 sets. Those that can be are of servers that
// take turns. At a rate that is fixed no throughput can be lost, and there are
// none.
func (s scene) claims() []suite.Claim {
	if s.load.rate > 0 {
		return nil
	}
	var list []suite.Claim
	add := func(name string, target float64, unit string, value func(suite.Round) (float64, bool)) {
		list = append(list, suite.Claim{
			Name: name, Source: "issue 7.3", Suite: Name, Shape: s.name,
			Target: target, Unit: unit, Value: value,
		})
	}
	// hold has bench gate hold the claim that was added last.
	hold := func(bound float64) {
		if bound > 0 {
			list[len(list)-1].Gated, list[len(list)-1].Gate = true, bound
		}
	}
	if s.inTurns() {
		if slices.Contains(s.rows, rowOff) {
			add("server's CPU a request with tracing off, vs "+s.bare, 1.15, "×", func(r suite.Round) (float64, bool) {
				return beside(r, rowOff, suite.Of(suite.RequestCPU, "server"), suite.Of(suite.RequestCPU, "reference"))
			})
		}
		if s.headed != "" { // what it is beside a server that does as much for a client
			add("server's CPU a request with tracing off, vs "+s.headed, 1.15, "×", func(r suite.Round) (float64, bool) {
				off, ok1 := beside(r, rowOff, suite.Of(suite.RequestCPU, "server"), suite.Of(suite.RequestCPU, "reference"))
				headed, ok2 := beside(r, s.headed, suite.Of(suite.RequestCPU, "server"), suite.Of(suite.RequestCPU, "reference"))
				return off / headed, ok1 && ok2 && headed != 0
			})
		}
		add("throughput lost at ratio 0, vs off", 5, "%", lostBeside(rowRatio0))
		if slices.Contains(s.rows, rowRatio1) {
			add("throughput lost at ratio 1, vs off", 25, "%", lostBeside(rowRatio1))
		}
		return list
	}
	if s.gate.cpu > 0 { // that of servers that take turns is the figure
		add("server's CPU a request with tracing off, vs "+s.bare, s.gate.cpu, "×", func(r suite.Round) (float64, bool) {
			return r.Ratio(suite.Of(suite.RequestCPU, "server"), rowOff, s.bare)
		})
		hold(s.gate.cpu)
	}
	if s.gate.off > 0 {
		add("allocations with tracing off, beyond "+s.bare, s.gate.off, "", more(suite.RequestAllocs, rowOff, s.bare))
		hold(s.gate.off)
		add("allocations at ratio 1, beyond off", s.gate.sampled, "", more(suite.RequestAllocs, rowRatio1, rowOff))
		hold(s.gate.sampled)
	}
	add("allocations at ratio 0 beyond off, a hop", 10, "", func(r suite.Round) (float64, bool) {
		with, ok1 := r.Get(rowRatio0, suite.RequestAllocs)
		without, ok2 := r.Get(rowOff, suite.RequestAllocs)
		return (with - without) / float64(s.hops), ok1 && ok2
	})
	hold(s.gate.unsampled)
	if s.load.fortio {
		add("throughput lost at ratio 1, vs off", 25, "%", lost(rowRatio1, rowOff))
		return list
	}
	add("throughput lost by a hung plugin, vs ratio 1", 2, "%", lost(rowHung, rowRatio1))
	add("throughput lost by a dead plugin, vs ratio 1", 2, "%", lost(rowDead, rowRatio1))
	add("throughput lost by a crash-looping plugin, vs ratio 1", 2, "%", lost(rowCrashing, rowRatio1))
	return list
}

// beside is a metric of a row divided by that of the row beside it.
func beside(r suite.Round, row, metric, reference string) (float64, bool) {
	above, ok1 := r.Get(row, metric)
	below, ok2 := r.Get(row, reference)
	return above / below, ok1 && ok2 && below != 0
}

// lostBeside is by how much less a row serves than the one beside it, in percent
// of that.
func lostBeside(row string) func(suite.Round) (float64, bool) {
	return func(r suite.Round) (float64, bool) {
		share, ok := beside(r, row, suite.Requests, suite.Of(suite.Requests, "reference"))
		return 100 * (1 - share), ok
	}
}

// more is what a row has beyond another.
func more(metric, row, than string) func(suite.Round) (float64, bool) {
	return func(r suite.Round) (float64, bool) {
		above, ok1 := r.Get(row, metric)
		below, ok2 := r.Get(than, metric)
		return above - below, ok1 && ok2
	}
}

// lost is by how much less a row serves than another, in percent of that.
func lost(row, of string) func(suite.Round) (float64, bool) {
	return func(r suite.Round) (float64, bool) {
		share, ok := r.Ratio(suite.Requests, row, of)
		return 100 * (1 - share), ok
	}
}
