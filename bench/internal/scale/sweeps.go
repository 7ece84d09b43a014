package scale

import (
	"fmt"
	"time"

	"github.com/servetrace/servetrace/bench/internal/spanpath"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// Name is what the suite is called, and the role of its children.
const Name = "scale"

// point is one place of a sweep.
type point struct {
	shape string
	load  spanpath.Load
	// target is what our CPU above the SDK floor may be of the peer's; zero: we
	// claim nothing there, as at few spans a second, where a batch of ours is sent
	// after 200 ms and one of the peer's after 5 s.
	target float64
}

// everywhere is claimed at every point that has a target: looser than what the
// headline shapes are held to, of which a sweep has the repeats to see the course
// only; theirs is what we go for.
const (
	everywhere = 0.75
	headline   = 0.60
)

// half is how long a point's spans are made: figures of a whole second are no
// better where the rows take turns.
const half = 500 * time.Millisecond

// sweepRepeats is low: a sweep shows a course, its points stand for each other.
const sweepRepeats = 2

// sweeps are all points, in order.
func sweeps() []point {
	var points []point
	for _, n := range []int{1, 8, 64} {
		points = append(points, point{plural(n, "producer"), spanpath.Load{Producers: n, Length: half}, everywhere})
	}
	for _, n := range []int{1, 2, 4, 8} {
		points = append(points, point{plural(n, "exporter"), spanpath.Load{Producers: 2, Exporters: n, Length: half}, everywhere})
	}
	for _, n := range []int{1, 16, 64, 200} {
		points = append(points, point{plural(n, "attribute"), spanpath.Load{Producers: 2, Attributes: n, Length: half}, everywhere})
	}
	return append(points, []point{
		{"1 span/s", spanpath.Load{Producers: 1, Rate: 1, Length: 3200 * time.Millisecond}, 0},
		{"100 spans/s", spanpath.Load{Producers: 1, Rate: 100, Length: time.Second}, 0},
		{"1k spans/s", spanpath.Load{Producers: 1, Rate: 1000, Length: time.Second}, 0},
		{"10k spans/s", spanpath.Load{Producers: 2, Rate: 10_000, Length: time.Second}, everywhere},
		{"100k spans/s", spanpath.Load{Producers: 2, Rate: 100_000, Length: half}, everywhere},
	}...)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sweepRows are what is compared at each point.
var sweepRows = []string{spanpath.RowFloor, spanpath.RowBSPHTTP, spanpath.RowOurs}

func sweepCases() []suite.Case {
	var cases []suite.Case
	for _, p := range sweeps() {
		for _, row := range sweepRows {
			cases = append(cases, spanpath.LoadCase(Name, p.shape, row, p.load, sweepRepeats))
		}
	}
	return cases
}

// Set gives all cases and claims of the suite.
func Set() suite.Set {
	return suite.Set{
		Cases:  append(sweepCases(), append(startCases(), idleCase())...),
		Claims: claims(),
	}
}
