package spanpath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// Name is the name of the suite, and the role of its children.
const Name = "spanpath"

// Roles has the roles of the suite's child processes.
var Roles = map[string]child.Role{Name: runCase, rolePulse: pulse}

// Set returns all cases and claims of the suite.
func Set() suite.Set {
	set := suite.Set{Claims: claims()}
	for _, s := range shapes {
		for _, r := range rows {
			if slices.Contains(s.rows, r.name) {
				set.Cases = append(set.Cases, newCase(s.name, r.name, r.doc, slices.Contains(s.quick, r.name), s.repeats))
			}
		}
	}
	set.Cases = append(set.Cases,
		newCase(shapeEncode, rowEncodeSDK, "the SDK's OTLP exporters: spans become messages, messages become bytes", true, 5),
		newCase(shapeEncode, rowEncode, "the host's encoder", true, 5))
	return set
}

func newCase(shape, row, doc string, quick bool, repeats int) suite.Case {
	return suite.Case{
		Suite: Name, Shape: shape, Row: row, Doc: doc, Quick: quick, Repeats: repeats,
		Run: func(ctx context.Context, env *suite.Env) (sample suite.Sample, err error) {
			c, err := child.Start(ctx, nil, Name)
			if err != nil {
				return nil, err
			}
			err = c.Ask(order{Row: row, Shape: shape, Bin: env.Bin, Sink: env.Sink.Addresses, Profile: env.Profile(Name, shape, row)}, &sample)
			return sample, errors.Join(err, c.Stop(nil))
		},
	}
}

// shape is a load of spans.
type shape struct {
	name, doc string
	rows      []string
	// quick are the rows of bench-quick.
	quick   []string
	repeats int
	// length is the time of the load after the warm-up.
	length time.Duration
	drive  drive
	// lossy means that spans may be lost, and that their number is the figure.
	lossy bool
	// latency is the sink's pause before an answer.
	latency time.Duration
	// kill means that the plugin is killed after half of the time.
	kill bool
	// timed means that each OnEnd of the processor is timed.
	timed bool
}

// The names of the shapes.
const (
	shapeSaturated = "saturated"
	shapePaced     = "paced, 30k spans/s"
	shapeBursts    = "400 spans, then 40 ms of pause"
	shapeOnEnd     = "OnEnd, isolated"
	shapeSlow      = "slow sink (25 ms), 32k spans/s"
	shapeKilled    = "plugin killed, 10k spans/s"
	shapeEncode    = "span to bytes"
)

var (
	headline = []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowOurs, rowOursGzip, rowOursRay, rowOursFull}
	onEnd    = []string{rowFloor, rowBSPNoop, rowOursNoop}
)

// shapes are all shapes except shapeEncode, which has no way to the sink.
var shapes = []shape{
	{
		name: shapeSaturated, doc: "two producers make spans as fast as the row accepts them",
		rows: slices.Concat(headline, []string{rowBSPGRPC, rowOursSDK}), quick: headline, repeats: 4, length: time.Second, drive: saturate(),
	},
	{
		name: shapePaced, doc: "two producers, 15 spans each millisecond and producer",
		rows:   []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowOurs, rowOursGzip, rowOursThird},
		length: 1200 * time.Millisecond, repeats: 3, drive: paced(2, 30_000),
	},
	{
		name: shapeOnEnd, doc: "a span each half millisecond, at a signal of another process; its OnEnd alone is timed",
		rows: onEnd, quick: onEnd, length: time.Second, repeats: 3, drive: pulsed(1, 500*time.Microsecond), timed: true,
	},
	{
		name: shapeSlow, doc: "the sink answers after 25 ms",
		rows: []string{rowOurs}, quick: []string{rowOurs}, length: 2 * time.Second, repeats: 3,
		drive: paced(2, 32_000), lossy: true, latency: 25 * time.Millisecond,
	},
	{
		name: shapeKilled, doc: "the plugin gets SIGKILL after half of the time",
		rows: []string{rowOurs}, length: 2 * time.Second, repeats: 3,
		drive: paced(2, 10_000), lossy: true, kill: true,
	},
	{
		name: shapeBursts, doc: "one producer: the highest rate for plugins/datadog, in bursts that the queue of dd-trace-go holds",
		rows:   []string{rowFloor, rowDatadog, rowDDOTel, rowOurs, rowOursDD},
		length: 2 * time.Second, repeats: 5, drive: bursts(400, 40*time.Millisecond),
	},
}

func findShape(name string) (shape, error) {
	i := slices.IndexFunc(shapes, func(s shape) bool { return s.name == name })
	if i < 0 {
		return shape{}, fmt.Errorf("no shape %q", name)
	}
	return shapes[i], nil
}
