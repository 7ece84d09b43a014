package spanpath

import (
	"fmt"
	"slices"
	"time"
)

// shape is how spans come, and to whom.
type shape struct {
	name, doc string
	rows      []string
	// quick are those of rows that bench-quick runs.
	quick   []string
	repeats int
	// length is how long spans are made, once warm.
	length time.Duration
	drive  drive
	// lossy: spans may be lost, and how many is what is asked. All rows run as
	// they do by default.
	lossy bool
	// latency is the time that the sink takes for an answer. kill: the plugin is
	// killed in the middle.
	latency time.Duration
	kill    bool
	// timed: each OnEnd of the processor is timed.
	timed bool
}

// The names of the shapes, which claims refer to.
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

// shapes are all but shapeEncode, in which no row runs.
var shapes = []shape{
	{
		name: shapeSaturated, doc: "two producers make spans as fast as they are taken",
		rows: allRows(), quick: headline, repeats: 4, length: time.Second, drive: saturate(),
	},
	{
		name: shapePaced, doc: "two producers, 15 spans each millisecond and producer",
		rows:   []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowBSPGRPC, rowOurs, rowOursGzip, rowOursRay, rowOursFull, rowOursSDK, rowOursThird},
		length: 1200 * time.Millisecond, repeats: 3, drive: paced(2, 30_000),
	},
	{
		name: shapeOnEnd, doc: "a span each half millisecond, when another process says so; its OnEnd alone is timed",
		rows: onEnd, quick: onEnd, length: time.Second, repeats: 3, drive: pulsed(1, 500*time.Microsecond), timed: true,
	},
	{
		name: shapeSlow, doc: "the sink answers after 25 ms, and a row that cannot keep up drops spans",
		rows: []string{rowBSPHTTP, rowOurs}, quick: []string{rowBSPHTTP, rowOurs}, length: 2 * time.Second, repeats: 3,
		drive: paced(2, 32_000), lossy: true, latency: 25 * time.Millisecond,
	},
	{
		name: shapeKilled, doc: "the plugin gets SIGKILL in the middle",
		rows: []string{rowOurs}, length: 2 * time.Second, repeats: 3,
		drive: paced(2, 10_000), lossy: true, kill: true,
	},
	{
		name: shapeBursts, doc: "one producer: the rate up to which plugins/datadog is meant, in bursts that the queue of dd-trace-go holds",
		rows:   []string{rowFloor, rowBSPHTTP, rowDatadog, rowDDOTel, rowOurs, rowOursDD},
		length: 2 * time.Second, repeats: 5, drive: bursts(400, 40*time.Millisecond),
	},
}

// allRows are those that are ways of OTLP.
func allRows() []string {
	var names []string
	for _, r := range slices.Concat(floorRows, peerRows, ourRows) {
		names = append(names, r.name)
	}
	return names
}

func findShape(name string) (shape, error) {
	for _, s := range shapes {
		if s.name == name {
			return s, nil
		}
	}
	return shape{}, fmt.Errorf("no shape %q", name)
}
