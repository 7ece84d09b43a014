package spanpath

import (
	"context"
	"errors"
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
		s.Together = s.turns > 1
		s.Run = s.run
		list = append(list, s.Shape)
	}
	return append(list, relayShape)
}

// run measures rows once. Each row has a process. The rows of a shape with several turns
// alternate, so that a change of the machine's speed affects all of them.
func (s shape) run(ctx context.Context, env *suite.Env, names []string) (round suite.Round, err error) {
	var children []*child.Child
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.Stop(nil))
		}
	}()
	for _, name := range names {
		c, err := child.Start(ctx, nil, roleSpans)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
		if err := c.Ask(order{Row: name, Shape: s.Name, Bin: env.Bin, Sink: env.Sink.Addresses, Path: s.path}, new(bool)); err != nil {
			return nil, err
		}
	}
	round = suite.Round{}
	turns := max(1, s.turns)
	for range turns {
		for i, name := range names {
			var sample suite.Sample
			if err := children[i].Ask(true, &sample); err != nil {
				return nil, err
			}
			round[name] = addTurn(round[name], sample, turns)
		}
	}
	return round, nil
}

// addTurn adds the figures of one of n turns to a sample: the share of a mean, and the
// highest peak.
func addTurn(sum, turn suite.Sample, n int) suite.Sample {
	if sum == nil {
		sum = suite.Sample{}
	}
	for metric, value := range turn {
		if metric == pluginRSS {
			sum[metric] = max(sum[metric], value)
		} else {
			sum[metric] += value / float64(n)
		}
	}
	return sum
}

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

// The names of the shapes.
const (
	shapeSaturated = "saturated"
	shapePaced     = "paced, 30k spans/s"
	shapeThird     = "a third party's plugin"
	shapeBursts    = "400 spans, then 40 ms of pause"
	shapeOnEnd     = "OnEnd, isolated"
	shapeSlow      = "slow sink (25 ms), 32k spans/s"
	shapeKilled    = "plugin killed, 10k spans/s"
	shapeProcessor = "a processor plugin that sets one attribute"
	shapeEncode    = "span to bytes"
)

var (
	headline       = []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowOurs, rowOursGzip, rowOursRay, rowOursFull}
	onEnd          = []string{rowFloor, rowBSPNoop, rowOursNoop}
	encoders       = []string{rowEncodeSDK, rowEncode}
	onlyOurs       = []string{rowOurs}
	withProcessors = []string{rowOursNoop, rowUnchanged, rowPatch, rowWhole}
)

var shapes = []shape{
	{ // Two producers make spans as fast as the row accepts them.
		Shape:  suite.Shape{Name: shapeSaturated, Rows: slices.Concat(headline, []string{rowBSPGRPC, rowOursSDK}), Quick: headline, Repeats: 4, Claims: claimsSaturated},
		length: time.Second / 4, turns: 4, drive: saturate,
	},
	{ // 15 spans each millisecond and producer.
		Shape:  suite.Shape{Name: shapePaced, Rows: []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowOurs, rowOursGzip}, Repeats: 3, Claims: claimsPaced},
		length: 400 * time.Millisecond, turns: 4, drive: paced(2, 30_000),
	},
	{ // Both plugins get the same batches at the same time.
		Shape:  suite.Shape{Name: shapeThird, Rows: []string{rowOursBoth}, Repeats: 5, Claims: claimsThird},
		length: 2 * time.Second, drive: saturate,
	},
	{ // A span each half millisecond, at a signal of another process. Its OnEnd alone is timed.
		Shape:  suite.Shape{Name: shapeOnEnd, Rows: onEnd, Quick: onEnd, Repeats: 3, Claims: claimsOnEnd},
		length: time.Second, drive: pulsed(500 * time.Microsecond), timed: true,
	},
	{
		Shape:  suite.Shape{Name: shapeSlow, Rows: onlyOurs, Quick: onlyOurs, Repeats: 3, Claims: claimsSlow},
		length: 2 * time.Second, drive: paced(2, 32_000), lossy: true, path: sink.SlowPath,
	},
	{
		Shape:  suite.Shape{Name: shapeKilled, Rows: onlyOurs, Repeats: 3, Claims: claimsKilled},
		length: 2 * time.Second, drive: paced(2, 10_000), lossy: true, kill: true,
	},
	{ // The highest rate for plugins/datadog, in bursts that the queue of dd-trace-go holds.
		Shape:  suite.Shape{Name: shapeBursts, Rows: []string{rowFloor, rowDatadog, rowDDOTel, rowOurs, rowOursDD}, Repeats: 5, Claims: claimsBursts},
		length: time.Second / 2, turns: 4, drive: bursts(400, 40*time.Millisecond),
	},
	{ // The exporter behind the processor does nothing.
		Shape:  suite.Shape{Name: shapeProcessor, Rows: withProcessors, Repeats: 5, Claims: claimsProcessor},
		length: time.Second / 4, turns: 4, drive: saturate,
	},
	{ // No way to the sink.
		Shape: suite.Shape{Name: shapeEncode, Rows: encoders, Quick: encoders, Repeats: 5, Claims: claimsEncode},
	},
}
