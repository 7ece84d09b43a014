package serveload

import (
	"slices"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// gate bounds the allocations of a request in bench-gate: with tracing off beyond the
// bare server, and at ratio 0 and 1 beyond tracing off. Zero is no bound.
type gate struct{ off, unsampled, sampled float64 }

// claims returns the bounds on the cost of a request in the scene.
func (s scene) claims() []suite.Claim {
	total, server := suite.Of(suite.RequestCPU, "total"), suite.Of(suite.RequestCPU, "server")
	var list []suite.Claim
	add := func(name, unit string, bound, goal float64, value func(suite.Round) (float64, bool)) {
		list = append(list, suite.Claim{Name: name, Suite: Name, Shape: s.name, Target: bound, Stretch: goal, Unit: unit, Value: value})
	}
	if s.gate.off > 0 {
		add("allocations a request with tracing off, beyond "+s.bare, "", s.gate.off, 0, more(suite.RequestAllocs, rowOff, s.bare))
		add("allocations a request at ratio 0, beyond off", "", s.gate.unsampled, 0, more(suite.RequestAllocs, rowRatio0, rowOff))
		add("allocations a request at ratio 1, beyond off", "", s.gate.sampled, 0, more(suite.RequestAllocs, rowRatio1, rowOff))
		for i := range list {
			list[i].Gated, list[i].Gate = true, list[i].Target
		}
	}
	if !s.inTurns() {
		return list
	}
	for _, row := range s.rows {
		switch {
		case row == rowOff:
			add("server's CPU a request with tracing off, vs "+s.beside, "×", 1.40, 1.25, beside(row, server))
		case row == rowRatio0:
			add("server's CPU a request at ratio 0, vs off", "×", 1.05, 1.03, beside(row, server))
		case row == rowRatio1:
			// Our server adds proxy, router, host and plugin, and saves the batch processor
			// and the exporter. The bound is the median of three runs, 0.99, and 10 %.
			add("all CPU a request with three spans, vs three SDK spans in process", "×", 1.09, 0.70, beside(row, total))
		case findRow(row).broken:
			add("throughput lost by a broken plugin ("+row+"), vs ratio 1", "%", 2, 0, lostBeside(row))
		}
		list[len(list)-1].Gated = slices.Contains(s.quick, row)
	}
	return list
}

// beside returns a metric of a row divided by the same metric of the row beside it.
func beside(row, metric string) func(suite.Round) (float64, bool) {
	return func(r suite.Round) (float64, bool) {
		above, ok1 := r.Get(row, metric)
		below, ok2 := r.Get(row, reference(metric))
		return above / below, ok1 && ok2 && below != 0
	}
}

// lostBeside returns the throughput that a row loses against the row beside it, in
// percent.
func lostBeside(row string) func(suite.Round) (float64, bool) {
	share := beside(row, suite.Requests)
	return func(r suite.Round) (float64, bool) {
		value, ok := share(r)
		return 100 * (1 - value), ok
	}
}

// more returns the excess of a row over another row.
func more(metric, row, than string) func(suite.Round) (float64, bool) {
	return func(r suite.Round) (float64, bool) { return r.Difference(metric, row, than) }
}
