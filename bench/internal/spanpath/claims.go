package spanpath

import "github.com/servetrace/servetrace/bench/internal/suite"

// The metrics that claims compare.
var (
	cpuTotal  = suite.Of(suite.CPU, "total")
	cpuHost   = suite.Of(suite.CPU, "host")
	onEndP50  = suite.Of(suite.OnEnd, "p50")
	onEndP99  = suite.Of(suite.OnEnd, "p99")
	lost      = suite.Of(suite.Spans, "lost")
	pluginRSS = suite.Of(suite.PeakRSS, "plugin")
)

// claims returns the bounds on the cost of a span, each with its goal.
func claims() []suite.Claim {
	return []suite.Claim{
		gated(aboveFloor("host + plugin CPU above floor, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.50)),
		gated(aboveFloor("host + plugin CPU above floor, gzip on both", shapeSaturated, cpuTotal, rowOursGzip, rowBSPGzip, 0.45, 0.35)),
		gated(aboveFloor("host process alone, CPU above floor", shapeSaturated, cpuHost, rowOurs, rowBSPHTTP, 0.45, 0.35)),
		gated(aboveFloor("host process alone, CPU above floor, gzip on both", shapeSaturated, cpuHost, rowOursGzip, rowBSPGzip, 0.30, 0.20)),
		gated(aboveFloor("with raycontext, CPU above floor, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOursRay, rowBSPHTTP, 0.75, 0.65)),
		gated(aboveFloor("with a full decode, CPU above floor, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOursFull, rowBSPHTTP, 1.1, 0.95)),
		gatedAt(1.2, ratio("host heap a span, vs floor", shapeSaturated, suite.Bytes, rowOurs, rowFloor, 1.2, 1.05)),
		gated(difference("host allocations a span, above floor", shapeSaturated, suite.Allocs, rowOurs, rowFloor, 0.1, 0.02)),

		// On a machine with other load, the lowest of three rounds was 0.31.
		gatedAt(0.75, onEndNet("OnEnd p50, isolated span, vs BSP", shapeOnEnd, onEndP50, 0.15, 0.10)),
		onEndNet("OnEnd p99, isolated span, vs BSP", shapeOnEnd, onEndP99, 0.20, 0.15),
		gated(ratio("span to bytes, vs transform + Marshal", shapeEncode, suite.Encode, rowEncode, rowEncodeSDK, 0.20, 0.15)),
		// Other goroutines of the process allocate some thousandths of an object for each span.
		gatedAt(0.01, value("span to bytes, allocations", shapeEncode, suite.Allocs, rowEncode, 0, 0, "")),

		aboveFloor("host + plugin CPU above floor, vs BSP + otlptracehttp", shapePaced, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.50),
		aboveFloor("host + plugin CPU above floor, gzip on both", shapePaced, cpuTotal, rowOursGzip, rowBSPGzip, 0.45, 0.35),
		aboveFloor("a third party's plugin, CPU above floor, vs plugins/otlp", shapePaced, cpuTotal, rowOursThird, rowOurs, 1.10, 1.00),
		value("plugin's peak RSS", shapePaced, pluginRSS, rowOurs, 32, 24, " MiB"),
		ratio("the service's own process with plugins/datadog, vs dd-trace-go in process", shapeBursts, cpuHost, rowOursDD, rowDatadog, 0.35, 0.30),

		gated(value("spans lost", shapeSlow, lost, rowOurs, 0, 0, "")),
		value("spans lost", shapeKilled, lost, rowOurs, 0, 0, ""),
	}
}

// gated adds a claim to bench gate.
func gated(c suite.Claim) suite.Claim {
	c.Gated = true
	return c
}

// gatedAt adds a claim to bench gate, with a bound of its own.
func gatedAt(bound float64, c suite.Claim) suite.Claim {
	c.Gate = bound
	return gated(c)
}

// aboveFloor compares a row with another row's total CPU, each minus the SDK with an
// empty processor.
func aboveFloor(name, shape, metric, row, of string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "×", func(r suite.Round) (float64, bool) {
		return r.RatioAbove(rowFloor, metric, row, cpuTotal, of)
	})
}

// onEndNet compares our OnEnd with the batch processor's, each minus the call of an
// empty OnEnd.
func onEndNet(name, shape, metric string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "×", func(r suite.Round) (float64, bool) {
		return r.RatioAbove(rowFloor, metric, rowOursNoop, metric, rowBSPNoop)
	})
}

// ratio compares two rows.
func ratio(name, shape, metric, row, of string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "×", func(r suite.Round) (float64, bool) { return r.Ratio(metric, row, of) })
}

// difference is the excess of a row over another row.
func difference(name, shape, metric, row, of string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "", func(r suite.Round) (float64, bool) {
		excess, ok := r.Difference(metric, row, of)
		return max(0, excess), ok
	})
}

// value is a figure of a row.
func value(name, shape, metric, row string, target, stretch float64, unit string) suite.Claim {
	return claim(name, shape, target, stretch, unit, func(r suite.Round) (float64, bool) { return r.Get(row, metric) })
}

func claim(name, shape string, target, stretch float64, unit string, f func(suite.Round) (float64, bool)) suite.Claim {
	return suite.Claim{Name: name, Suite: Name, Shape: shape, Target: target, Stretch: stretch, Unit: unit, Value: f}
}
