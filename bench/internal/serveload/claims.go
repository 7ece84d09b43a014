package serveload

import "github.com/servetrace/servetrace/bench/internal/suite"

// claims are the budgets that issue 7 sets. At a rate that is fixed no throughput
// can be lost, and there are none.
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
	if s.hops == 1 {
		add("server's CPU a request with tracing off, vs "+s.bare, 1.15, "×", func(r suite.Round) (float64, bool) {
			return r.Ratio(suite.Of(suite.RequestCPU, "server"), rowOff, s.bare)
		})
	}
	add("throughput lost at ratio 0, vs off", 5, "%", lost(rowRatio0, rowOff))
	add("allocations at ratio 0 beyond off, a hop", 10, "", func(r suite.Round) (float64, bool) {
		with, ok1 := r.Get(rowRatio0, suite.RequestAllocs)
		without, ok2 := r.Get(rowOff, suite.RequestAllocs)
		return (with - without) / float64(s.hops), ok1 && ok2
	})
	add("throughput lost at ratio 1, vs off", 25, "%", lost(rowRatio1, rowOff))
	add("throughput lost by a hung plugin, vs ratio 1", 2, "%", lost(rowHung, rowRatio1))
	add("throughput lost by a dead plugin, vs ratio 1", 2, "%", lost(rowDead, rowRatio1))
	add("throughput lost by a crash-looping plugin, vs ratio 1", 2, "%", lost(rowCrashing, rowRatio1))
	return list
}

// lost is by how much less a row serves than another, in percent of that.
func lost(row, of string) func(suite.Round) (float64, bool) {
	return func(r suite.Round) (float64, bool) {
		share, ok := r.Ratio(suite.Requests, row, of)
		return 100 * (1 - share), ok
	}
}
