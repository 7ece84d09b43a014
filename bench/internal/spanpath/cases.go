package spanpath

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// roleSpans is the role of the processes with the rows.
const roleSpans = "spans"

// Roles has the roles of the child processes.
var Roles = map[string]child.Role{roleSpans: runOrder, rolePulse: pulse}

// Shapes returns all shapes.
func Shapes() []suite.Shape {
	var list []suite.Shape
	for _, s := range shapes {
		s.Run = s.run
		list = append(list, s.Shape)
	}
	return list
}

// run measures rows once. Each row has a process.
func (s shape) run(ctx context.Context, env *suite.Env, names []string) (suite.Round, error) {
	turns := max(1, s.turns)
	var skipped error
	isCollector := func(row string) bool { return row == rowCollector || row == rowCollectorGzip }
	if _, err := os.Stat(env.Collector); err != nil && slices.ContainsFunc(names, isCollector) {
		skipped = suite.SkippedError(fmt.Sprintf("%s: there is no Collector at %q; make peers PEERS=otelcol builds it", rowCollector, env.Collector))
		names = slices.DeleteFunc(slices.Clone(names), isCollector)
	}
	round, err := suite.Alternate(ctx, turns, names, func(name string) (suite.Contender, error) {
		text, err := json.Marshal(order{Row: name, Shape: s.Name, Bin: env.Bin, Sink: env.Sink.Addresses, Path: s.path, Collector: env.Collector})
		if err != nil {
			return nil, err
		}
		c, err := child.Start(ctx, nil, roleSpans, string(text))
		if err != nil {
			return nil, err
		}
		return &contender{process: c, turns: turns, sum: suite.Sample{}}, c.Read(new(bool))
	})
	return round, cmp.Or(err, skipped)
}

// contender is the process of a row, and the figures of its turns.
type contender struct {
	process *child.Child
	turns   int
	sum     suite.Sample
}

// Turn adds the figures of a turn: the share of a mean, and the highest peak.
func (c *contender) Turn(context.Context) error {
	var turn suite.Sample
	err := c.process.Ask(true, &turn)
	for metric, value := range turn {
		if metric == pluginRSS {
			c.sum[metric] = max(c.sum[metric], value)
		} else {
			c.sum[metric] += value / float64(c.turns)
		}
	}
	return err
}

func (c *contender) Sample() suite.Sample { return c.sum }

func (c *contender) Stop() error { return c.process.Stop(nil) }

// shape is a load of spans.
type shape struct {
	suite.Shape
	// length is the time of a turn, and turns the number of turns of each row after the
	// warm-up. Zero turns are one.
	length time.Duration
	turns  int
	drive  drive
	// lossy means that spans may be lost, and that their number is the figure.
	lossy bool
	// path is a prefix of the sink's paths.
	path string
	// kill means that the plugin is killed after half of the time.
	kill bool
	// timed means that each OnEnd of the processor is timed.
	timed bool
}

const (
	shapePaced  = "paced, 30k spans/s"
	shapeEncode = "span to bytes"
)

var (
	headline = []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowOurs, rowOursGzip, rowOursRay, rowOursFull}
	onEnd    = []string{rowFloor, rowBSPNoop, rowOursNoop}
	encoders = []string{rowEncodeSDK, rowEncode}
	onlyOurs = []string{rowOurs}
)

var shapes = []shape{
	{ // Two producers make spans as fast as the row accepts them.
		Shape:  suite.Shape{Name: "saturated", Rows: slices.Concat(headline, []string{rowBSPGRPC, rowOursSDK}), Quick: headline, Repeats: 4, Claims: claimsSaturated},
		length: time.Second / 4, turns: 4, drive: saturate,
	},
	{ // 15 spans each millisecond and producer.
		Shape:  suite.Shape{Name: shapePaced, Rows: []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowOurs, rowOursGzip}, Repeats: 3, Claims: claimsPaced},
		length: 400 * time.Millisecond, turns: 4, drive: paced(2, 30_000),
	},
	{ // Both plugins get the same batches at the same time.
		Shape:  suite.Shape{Name: "a third party's plugin", Rows: []string{rowOursBoth}, Repeats: 5, Claims: claimsThird},
		length: 2 * time.Second, drive: saturate,
	},
	{ // A span each half millisecond, at a signal of another process. Its OnEnd alone is timed.
		Shape:  suite.Shape{Name: "OnEnd, isolated", Rows: onEnd, Quick: onEnd, Repeats: 3, Claims: claimsOnEnd},
		length: time.Second, drive: pulsed(500 * time.Microsecond), timed: true,
	},
	{
		Shape:  suite.Shape{Name: "slow sink (25 ms), 32k spans/s", Rows: onlyOurs, Quick: onlyOurs, Repeats: 3, Claims: claimsSlow},
		length: 2 * time.Second, drive: paced(2, 32_000), lossy: true, path: sink.SlowPath,
	},
	{
		Shape:  suite.Shape{Name: "plugin killed, 10k spans/s", Rows: onlyOurs, Repeats: 3, Claims: claimsKilled},
		length: 2 * time.Second, drive: paced(2, 10_000), lossy: true, kill: true,
	},
	{ // The highest rate for plugins/datadog, in bursts that the queue of dd-trace-go holds.
		Shape:  suite.Shape{Name: "400 spans, then 40 ms of pause", Rows: []string{rowFloor, rowDatadog, rowDDOTel, rowOurs, rowOursDD}, Repeats: 5, Claims: claimsBursts},
		length: time.Second / 2, turns: 4, drive: bursts(400, 40*time.Millisecond),
	},
	{ // The exporter behind the processor does nothing.
		Shape:  suite.Shape{Name: "a processor plugin that sets one attribute", Rows: []string{rowOursNoop, rowUnchanged, rowPatch, rowWhole}, Repeats: 5, Claims: claimsProcessor},
		length: time.Second / 4, turns: 4, drive: saturate,
	},
	{ // No way to the sink.
		Shape: suite.Shape{Name: shapeEncode, Rows: encoders, Quick: encoders, Repeats: 5, Claims: claimsEncode},
	},
	{ // Two senders of requests.
		Shape:  suite.Shape{Name: "relay, 30k spans/s", Rows: []string{rowRelay, rowCollector, rowRelayGzip, rowCollectorGzip}, Quick: []string{rowRelay}, Repeats: 3, Claims: claimsRelay},
		length: time.Second / 2, turns: 4, drive: paced(2, 30_720/requestSpans), lossy: true,
	},
}

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
	cpuRelay  = "CPU, ns/span" // of all processes of a relay
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
	claimsRelay = []suite.Claim{
		suite.NewRatio("CPU of the relay and its plugin, vs a Collector", cpuRelay, rowRelay, rowCollector, 0.50, 0),
		suite.NewRatio("CPU of the relay and its plugin, vs a Collector, gzip on both", cpuRelay, rowRelayGzip, rowCollectorGzip, 0.50, 0),
		value("spans lost by the relay", "", lost, rowRelay, 0, 0).GatedAt(0.5),
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
