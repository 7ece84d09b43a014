package scale

import (
	"github.com/servetrace/servetrace/bench/internal/spanpath"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// claims hold our cost against the peer's at every point that has a target.
func claims() []suite.Claim {
	var list []suite.Claim
	total := suite.Of(suite.CPU, "total")
	for _, p := range sweeps() {
		if p.target == 0 {
			continue
		}
		list = append(list, suite.Claim{
			Name: "host + plugin CPU above the SDK floor, vs BSP + otlptracehttp", Source: "issue 7.4",
			Suite: Name, Shape: p.shape, Target: p.target, Stretch: headline, Unit: "×",
			Value: func(r suite.Round) (float64, bool) {
				return r.RatioAbove(spanpath.RowFloor, total, spanpath.RowOurs, total, spanpath.RowBSPHTTP)
			},
		})
	}
	return list
}
