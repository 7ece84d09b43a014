package spanpath

import "github.com/servetrace/servetrace/bench/internal/suite"

// The metrics. "host" is the process with the SDK, "total" host and plugins. All are
// for each delivered span.
const (
	cpuHost   = "CPU host, ns/span"
	cpuTotal  = "CPU total, ns/span"
	heapBytes = "heap host, B/span"
	allocs    = "allocations host, /span"
	encode    = "time, ns/span"
	onEndP50  = "OnEnd p50, ns"
	onEndP99  = "OnEnd p99, ns"
	pluginRSS = "peak RSS plugin, MiB"
	rate      = "spans/s"
	lost      = "spans lost"
)

// cpuOf returns the metric of a plugin. The only plugin of a row has the name "plugin".
func cpuOf(plugin string) string { return "CPU " + plugin + ", ns/span" }

const (
	vsHTTP = "host + plugin CPU above floor, vs BSP + otlptracehttp"
	vsGzip = "host + plugin CPU above floor, gzip on both"
)

var (
	claimsSaturated = []suite.Claim{
		aboveFloor(vsHTTP, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.50).Gated(),
		aboveFloor(vsGzip, cpuTotal, rowOursGzip, rowBSPGzip, 0.45, 0.35).Gated(),
		aboveFloor("host process alone, CPU above floor", cpuHost, rowOurs, rowBSPHTTP, 0.45, 0.35).Gated(),
		aboveFloor("host process alone, CPU above floor, gzip on both", cpuHost, rowOursGzip, rowBSPGzip, 0.30, 0.20).Gated(),
		aboveFloor("with raycontext, CPU above floor, vs BSP + otlptracehttp", cpuTotal, rowOursRay, rowBSPHTTP, 0.75, 0.65).Gated(),
		aboveFloor("with a full decode, CPU above floor, vs BSP + otlptracehttp", cpuTotal, rowOursFull, rowBSPHTTP, 1.1, 0.95).Gated(),
		suite.NewRatio("host heap a span, vs floor", heapBytes, rowOurs, rowFloor, 1.2, 1.05).GatedAt(1.2),
		suite.Claim{Name: "host allocations a span, above floor", Bound: 0.1, Goal: 0.02, Value: func(r suite.Round) float64 {
			return max(0, r.Get(rowOurs, allocs)-r.Get(rowFloor, allocs))
		}}.Gated(),
	}
	claimsPaced = []suite.Claim{
		aboveFloor(vsHTTP, cpuTotal, rowOurs, rowBSPHTTP, 0.60, 0.50),
		aboveFloor(vsGzip, cpuTotal, rowOursGzip, rowBSPGzip, 0.45, 0.35),
		value("plugin's peak RSS", " MiB", pluginRSS, rowOurs, 32, 24),
	}
	claimsThird = []suite.Claim{{Name: "a third party's plugin, its CPU, vs plugins/otlp", Unit: "×", Bound: 1.10, Goal: 1, Value: func(r suite.Round) float64 {
		return r.Get(rowOursBoth, cpuOf(pluginThird)) / r.Get(rowOursBoth, cpuOf(pluginOTLP))
	}}}
	// Each OnEnd is reduced by the call of an empty OnEnd. On a machine with other load,
	// the lowest p50 of three rounds was 0.31.
	claimsOnEnd = []suite.Claim{
		onEndNet("OnEnd p50, isolated span, vs BSP", onEndP50, 0.15, 0.10).GatedAt(0.75),
		onEndNet("OnEnd p99, isolated span, vs BSP", onEndP99, 0.20, 0.15),
	}
	claimsSlow   = []suite.Claim{value("spans lost", "", lost, rowOurs, 0, 0).GatedAt(0.5)}
	claimsKilled = []suite.Claim{value("spans lost", "", lost, rowOurs, 0, 0)}
	claimsBursts = []suite.Claim{suite.NewRatio("the service's own process with plugins/datadog, vs dd-trace-go in process", cpuHost, rowOursDD, rowDatadog, 0.35, 0.30)}
	// The way back is from the edits in the processor to the new batch in the host, without
	// the way out and the edits themselves.
	claimsProcessor = []suite.Claim{
		{Name: "a processor plugin that sets one attribute, out and back, CPU a span", Unit: " ns", Bound: 1300, Value: func(r suite.Round) float64 {
			return r.Get(rowPatch, cpuTotal) - r.Get(rowOursNoop, cpuTotal)
		}},
		{Name: "the way back by patch, its CPU, vs whole batches", Unit: "×", Bound: 0.5, Value: func(r suite.Round) float64 {
			return r.RatioAbove(rowUnchanged, cpuTotal, rowPatch, cpuTotal, rowWhole)
		}},
	}
	claimsEncode = []suite.Claim{
		suite.NewRatio("span to bytes, vs transform + Marshal", encode, rowEncode, rowEncodeSDK, 0.20, 0.15).Gated(),
		// In a short run, other goroutines of the process allocate some thousandths for each span.
		value("span to bytes, allocations", "", allocs, rowEncode, 0, 0).GatedAt(0.01),
	}
)

// aboveFloor compares a row with another row's total CPU, each minus the SDK with an
// empty processor.
func aboveFloor(name, metric, row, of string, bound, goal float64) suite.Claim {
	return suite.Claim{Name: name, Unit: "×", Bound: bound, Goal: goal, Value: func(r suite.Round) float64 {
		return r.RatioAbove(rowFloor, metric, row, cpuTotal, of)
	}}
}

func onEndNet(name, metric string, bound, goal float64) suite.Claim {
	return suite.Claim{Name: name, Unit: "×", Bound: bound, Goal: goal, Value: func(r suite.Round) float64 {
		return r.RatioAbove(rowFloor, metric, rowOursNoop, metric, rowBSPNoop)
	}}
}

// value is a figure of a row.
func value(name, unit, metric, row string, bound, goal float64) suite.Claim {
	return suite.Claim{Name: name, Unit: unit, Bound: bound, Goal: goal, Value: func(r suite.Round) float64 { return r.Get(row, metric) }}
}
