package spanpath

import "github.com/servetrace/servetrace/bench/internal/suite"

// What a claim divides.
var (
	cpuTotal = suite.Of(suite.CPU, "total")
	cpuHost  = suite.Of(suite.CPU, "host")
)

// claims are those of the targets that the specification sets.
func claims() []suite.Claim {
	return []suite.Claim{
		aboveFloor("host + plugin CPU above the SDK floor, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.40),
	}
}

// aboveFloor compares CPU, each less that of the SDK with an empty processor.
func aboveFloor(name, shape, metric, row, of string, target, stretch float64) suite.Claim {
	return suite.Claim{
		Name: name, Source: "4.5", Suite: Name, Shape: shape, Target: target, Stretch: stretch, Unit: "×", Quick: shape == shapeSaturated,
		Value: func(r suite.Round) (float64, bool) { return r.RatioAbove(rowFloor, metric, row, cpuTotal, of) },
	}
}
