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
	// warm is what warms up, where drive is too slow for that; nil: drive.
	warm drive
	// watched: producers wait while too many spans wait, see driver.await.
	watched bool
	// lossy: spans may be lost, and how many is what is asked. All rows run as
	// they do by default.
	lossy bool
	// latency is the sink's; dead: the sink refuses connections; kill: the plugin
	// is killed in the middle.
	latency    time.Duration
	dead, kill bool
	// timed: each OnEnd of the processor is timed. deep: its queue holds deepQueue
	// spans.
	timed, deep bool
}

// The names of the shapes, which claims refer to.
const (
	shapeSaturated = "saturated"
	shapePaced10k  = "paced, 10k spans/s"
	shapePaced30k  = "paced, 30k spans/s"
	shapeIsolated  = "isolated spans, 2k/s"
	shapeDense     = "400 spans, then 1 ms of pause"
	shapeOnEnd1    = "OnEnd, isolated"
	shapeOnEnd8    = "OnEnd, bursts of 8"
	shapeOnEnd64   = "OnEnd, bursts of 64"
	shapeTight1    = "OnEnd, saturated, 1 producer"
	shapeTight2    = "OnEnd, saturated, 2 producers"
	shapeSlow      = "slow sink (25 ms), 32k spans/s"
	shapeDead      = "dead sink, 10k spans/s"
	shapeKilled    = "plugin killed, 10k spans/s"
	shapeEncode    = "span to bytes"
)

var (
	headline = []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowOurs, rowOursGzip, rowOursRay, rowOursFull}
	onEnd    = []string{rowFloor, rowBSPNoop, rowOursNoop}
)

// shapes are all but that of encoding, which is no way to anywhere.
var shapes = []shape{
	{
		name: shapeSaturated, doc: "two producers make spans as fast as they are taken",
		rows: allRows(), quick: headline, repeats: 4, length: time.Second, drive: saturate(2), watched: true,
	},
	{
		name: shapePaced30k, doc: "two producers, 15 spans each millisecond and producer",
		rows:   []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowBSPGRPC, rowNaive, rowOurs, rowOursGzip, rowOursRay, rowOursFull, rowOursSDK},
		length: 1200 * time.Millisecond, repeats: 3, drive: paced(2, 30_000),
	},
	{
		name: shapePaced10k, doc: "two producers, 5 spans each millisecond and producer",
		rows:   []string{rowFloor, rowBSPHTTP, rowBSPGzip, rowBSPGRPC, rowNaive, rowOurs, rowOursGzip},
		length: 1200 * time.Millisecond, repeats: 3, drive: paced(2, 10_000),
	},
	{
		name: shapeIsolated, doc: "one producer, a span each half millisecond, when another process says so",
		rows:   []string{rowFloor, rowBSPNoop, rowBSPHTTP, rowOurs},
		length: 2 * time.Second, repeats: 3, drive: pulsed(1, 500*time.Microsecond),
	},
	{
		name: shapeOnEnd1, doc: "a span each half millisecond, when another process says so; its OnEnd alone is timed",
		rows: onEnd, quick: onEnd, length: time.Second, repeats: 3, drive: pulsed(1, 500*time.Microsecond), timed: true,
	},
	{
		name: shapeOnEnd8, doc: "8 spans each millisecond; OnEnd alone is timed",
		rows: onEnd, length: time.Second, repeats: 3, drive: pulsed(8, time.Millisecond), timed: true,
	},
	{
		name: shapeOnEnd64, doc: "64 spans each 2 ms; OnEnd alone is timed",
		rows: onEnd, length: time.Second, repeats: 3, drive: pulsed(64, 2*time.Millisecond), timed: true,
	},
	{
		name: shapeTight1, doc: "OnEnd alone, 65,536 finished spans in a loop, and queues that hold them",
		rows: onEnd, length: time.Second / 2, repeats: 5, drive: onEndTight(1), deep: true,
	},
	{
		name: shapeTight2, doc: "the same from two goroutines at a time",
		rows: onEnd, length: time.Second / 2, repeats: 9, drive: onEndTight(2), deep: true,
	},
	{
		name: shapeSlow, doc: "the sink answers after 25 ms, and whoever can not keep up drops",
		rows: []string{rowBSPHTTP, rowOurs}, quick: []string{rowBSPHTTP, rowOurs}, length: 2 * time.Second, repeats: 3,
		drive: paced(2, 32_000), lossy: true, latency: 25 * time.Millisecond,
	},
	{
		name: shapeDead, doc: "the sink refuses connections",
		rows: []string{rowFloor, rowBSPHTTP, rowOurs}, length: 2 * time.Second, repeats: 2,
		drive: paced(2, 10_000), lossy: true, dead: true,
	},
	{
		name: shapeKilled, doc: "the plugin gets SIGKILL in the middle",
		rows: []string{rowOurs}, length: 2 * time.Second, repeats: 3,
		drive: paced(2, 10_000), lossy: true, kill: true,
	},
	{
		name: shapeDense, doc: "one producer, which pauses so that dd-trace-go can keep up: it drops what its queue does not hold",
		rows:   []string{rowFloor, rowBSPHTTP, rowDatadog, rowOurs, rowOursDD, rowOursDDRay},
		length: time.Second, repeats: 5, drive: bursts(400, time.Millisecond), watched: true,
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
