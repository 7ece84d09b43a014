package spanpath

import "github.com/servetrace/servetrace/bench/internal/suite"

// What claims are about.
var (
	cpuTotal  = suite.Of(suite.CPU, "total")
	cpuHost   = suite.Of(suite.CPU, "host")
	onEndP50  = suite.Of(suite.OnEnd, "p50")
	onEndP99  = suite.Of(suite.OnEnd, "p99")
	lost      = suite.Of(suite.Spans, "lost")
	pluginRSS = suite.Of(suite.PeakRSS, "plugin")
)

// Where the targets come from: the table of targets of the project's
// performance specification, and its issue 7.
const (
	table = "table 4.5"
	issue = "issue 7"
)

// claims are the targets, in the order of the table.
func claims() []suite.Claim {
	return []suite.Claim{
		gatedAt(0.75, onEndNet("OnEnd p50, isolated span, vs BSP", shapeOnEnd1, onEndP50, 0.25, 0.12)), // beside compilers, 0.31 was seen
		onEndNet("OnEnd p99, isolated span, vs BSP", shapeOnEnd1, onEndP99, 0.20, 0.10),
		onEndNet("OnEnd p50, bursts of 8, vs BSP", shapeOnEnd8, onEndP50, 0.35, 0.25),
		onEndNet("OnEnd p50, bursts of 64, vs BSP", shapeOnEnd64, onEndP50, 0.7, 0.5),
		onEndNet("OnEnd, saturated, 1 producer, vs BSP", shapeTight1, onEndP50, 0.9, 0.6),
		onEndNet("OnEnd, saturated, 2 producers, vs BSP", shapeTight2, onEndP50, 0.5, 0.3),

		gated(ratio("span to bytes, vs transform + Marshal", shapeEncode, suite.Encode, rowEncode, rowEncodeSDK, 0.20, 0.10)),
		// What others allocate in the process meanwhile is some thousandths.
		gatedAt(0.01, value("span to bytes, allocations", shapeEncode, suite.Allocs, rowEncode, 0, 0, "")),

		gated(aboveFloor("host + plugin CPU above floor, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.40)),
		gated(aboveFloor("host + plugin CPU above floor, gzip on both", shapeSaturated, cpuTotal, rowOursGzip, rowBSPGzip, 0.45, 0.30)),
		ratio("host + plugin CPU with the SDK's, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOurs, rowBSPHTTP, 0.75, 0.60),
		ratio("host + plugin CPU with the SDK's, gzip on both", shapeSaturated, cpuTotal, rowOursGzip, rowBSPGzip, 0.60, 0.45),
		gated(aboveFloor("host process alone, CPU above floor", shapeSaturated, cpuHost, rowOurs, rowBSPHTTP, 0.40, 0.25)),
		gated(aboveFloor("host process alone, CPU above floor, gzip on both", shapeSaturated, cpuHost, rowOursGzip, rowBSPGzip, 0.25, 0.15)),
		gatedAt(1.2, ratio("host heap a span, vs floor", shapeSaturated, suite.Bytes, rowOurs, rowFloor, 1.2, 1.05)),
		gated(difference("host allocations a span, above floor", shapeSaturated, suite.Allocs, rowOurs, rowFloor, 0.1, 0.02)),
		gated(aboveFloor("with raycontext, CPU above floor, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOursRay, rowBSPHTTP, 0.75, 0.55)),
		gated(aboveFloor("with a full decode, CPU above floor, vs BSP + otlptracehttp", shapeSaturated, cpuTotal, rowOursFull, rowBSPHTTP, 1.1, 0.9)),
		ratio("host + plugin CPU, vs naive go-plugin exporter", shapeSaturated, cpuTotal, rowOurs, rowNaive, 0.40, 0.25),

		aboveFloor("host + plugin CPU above floor, vs BSP + otlptracehttp", shapePaced30k, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.40),
		aboveFloor("host + plugin CPU above floor, gzip on both", shapePaced30k, cpuTotal, rowOursGzip, rowBSPGzip, 0.45, 0.30),
		ratio("host + plugin CPU, vs naive go-plugin exporter", shapePaced30k, cpuTotal, rowOurs, rowNaive, 0.40, 0.25),
		value("plugin's peak RSS", shapePaced30k, pluginRSS, rowOurs, 32, 24, " MiB"),
		aboveFloor("host + plugin CPU above floor, vs BSP + otlptracehttp", shapePaced10k, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.40),
		aboveFloor("host + plugin CPU above floor, gzip on both", shapePaced10k, cpuTotal, rowOursGzip, rowBSPGzip, 0.45, 0.30),
		aboveFloor("host + plugin CPU above floor, vs BSP + otlptracehttp", shapeIsolated, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.40),

		ratio("host + plugin CPU by OTLP, vs dd-trace-go", shapeDense, cpuTotal, rowOurs, rowDatadog, 0.5, 0.35),
		ofIssue(ratio("host + plugin CPU by plugins/datadog, vs dd-trace-go", shapeDense, cpuTotal, rowOursDD, rowDatadog, 0.5, 0.35)),

		gated(value("spans lost", shapeSlow, lost, rowOurs, 0, 0, "")),
		value("spans lost", shapeKilled, lost, rowOurs, 0, 0, ""),
	}
}

// gated has bench gate hold a claim too.
func gated(c suite.Claim) suite.Claim {
	c.Gated = true
	return c
}

// gatedAt is gated with a bound of its own.
func gatedAt(bound float64, c suite.Claim) suite.Claim {
	c.Gate = bound
	return gated(c)
}

// ofIssue says that a claim is not of the table.
func ofIssue(c suite.Claim) suite.Claim {
	c.Source = issue
	return c
}

// aboveFloor compares a row with another's total CPU, each less what the SDK with
// an empty processor costs.
func aboveFloor(name, shape, metric, row, of string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "×", func(r suite.Round) (float64, bool) {
		return r.RatioAbove(rowFloor, metric, row, cpuTotal, of)
	})
}

// onEndNet compares our OnEnd with the batch processor's, each less the call of
// an empty one.
func onEndNet(name, shape, metric string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "×", func(r suite.Round) (float64, bool) {
		return r.RatioAbove(rowFloor, metric, rowOursNoop, metric, rowBSPNoop)
	})
}

// ratio compares two rows as they are.
func ratio(name, shape, metric, row, of string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "×", func(r suite.Round) (float64, bool) { return r.Ratio(metric, row, of) })
}

// difference is what a row has more than another.
func difference(name, shape, metric, row, of string, target, stretch float64) suite.Claim {
	return claim(name, shape, target, stretch, "", func(r suite.Round) (float64, bool) {
		above, ok1 := r.Get(row, metric)
		below, ok2 := r.Get(of, metric)
		return max(0, above-below), ok1 && ok2
	})
}

// value is one figure of one row.
func value(name, shape, metric, row string, target, stretch float64, unit string) suite.Claim {
	return claim(name, shape, target, stretch, unit, func(r suite.Round) (float64, bool) { return r.Get(row, metric) })
}

func claim(name, shape string, target, stretch float64, unit string, f func(suite.Round) (float64, bool)) suite.Claim {
	return suite.Claim{Name: name, Source: table, Suite: Name, Shape: shape, Target: target, Stretch: stretch, Unit: unit, Value: f}
}
