package serveload

import (
	"strings"

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
	switch {
	case s.load.rate > 0:
		return nil
	case s.inTurns():
		return s.turnClaims()
	}
	var list []suite.Claim
	gated := func(bound float64, c suite.Claim) {
		c.Gated, c.Gate = true, bound
		list = append(list, c)
	}
	if s.gate.cpu > 0 { // that of servers that take turns is the figure
		gated(s.gate.cpu, s.claim(offCPU+s.bare, s.gate.cpu, "×", func(r suite.Round) (float64, bool) {
			return r.Ratio(suite.Of(suite.RequestCPU, "server"), rowOff, s.bare)
		}))
	}
	if s.gate.off > 0 {
		gated(s.gate.off, s.claim("allocations with tracing off, beyond "+s.bare, s.gate.off, "", more(suite.RequestAllocs, rowOff, s.bare)))
		gated(s.gate.sampled, s.claim("allocations at ratio 1, beyond off", s.gate.sampled, "", more(suite.RequestAllocs, rowRatio1, rowOff)))
	}
	unsampled := s.claim("allocations at ratio 0 beyond off, a hop", 10, "", func(r suite.Round) (float64, bool) {
		n, ok := more(suite.RequestAllocs, rowRatio0, rowOff)(r)
		return n / float64(s.hops), ok
	})
	if s.gate.unsampled > 0 {
		gated(s.gate.unsampled, unsampled)
	} else {
		list = append(list, unsampled)
	}
	return list
}

const offCPU = "server's CPU a request with tracing off, vs "

// turnClaims are those of rows that are measured beside another one.
func (s scene) turnClaims() []suite.Claim {
	server, reference := suite.Of(suite.RequestCPU, "server"), suite.Of(suite.RequestCPU, "reference")
	var list []suite.Claim
	for _, row := range s.rows {
		switch row {
		case rowOff:
			list = append(list, s.claim(offCPU+s.against(ourRow(row)).name, 1.15, "×", func(r suite.Round) (float64, bool) {
				return beside(r, row, server, reference)
			}))
		case s.headed:
			list = append(list, s.claim(offCPU+s.bare, 1.15, "×", func(r suite.Round) (float64, bool) {
				off, ok1 := beside(r, rowOff, server, reference) // that being this row's server
				headed, ok2 := beside(r, row, server, reference)
				return off * headed, ok1 && ok2
			}))
		case rowRatio0:
			list = append(list, s.claim("throughput lost at ratio 0, vs off", 5, "%", lostBeside(row)))
		case rowRatio1:
			list = append(list, s.claim("throughput lost at ratio 1, vs off", 25, "%", lostBeside(row)))
		case rowHung, rowDead, rowCrashing:
			list = append(list, s.claim("throughput lost by a "+strings.TrimPrefix(row, rowRatio1+", ")+", vs ratio 1", 2, "%", lostBeside(row)))
		}
	}
	return list
}

func (s scene) claim(name string, target float64, unit string, value func(suite.Round) (float64, bool)) suite.Claim {
	return suite.Claim{Name: name, Source: "issue 7.3", Suite: Name, Shape: s.name, Target: target, Unit: unit, Value: value}
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
