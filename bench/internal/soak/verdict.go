package soak

import (
	"fmt"
	"slices"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Finding is one thing that a soak was asked, with the answer.
type Finding struct {
	What  string `json:"what"`
	Found string `json:"found"`
	OK    bool   `json:"ok"`
}

// OK tells whether all is as it should be.
func (r *Result) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return !f.OK })
}

const mib = 1 << 20

// The bounds of memory: the queue's is a setting of 32 MiB, grpc may have 16 of
// its own, and a heap of Go may be twice what lives on it.
const (
	queueBound  = 32 * mib
	liveBound   = queueBound + 16*mib
	hostBound   = 2*liveBound + 32*mib // stacks, code, the runtime's own
	pluginBound = 32 * mib
)

// series is one kind of memory.
type series struct {
	name string
	// bound is what it may never exceed, and rhythm what it may grow by in the
	// time that is looked at, however long that is: what lies between a collection
	// and the next, and what an allocator has not given back.
	bound, rhythm int64
	of            func(soakSample) int64
}

var soakSeries = []series{
	{"host, queue (by the books)", queueBound, mib, func(s soakSample) int64 { return s.Queue }},
	{"host, live heap", liveBound, 2 * mib, func(s soakSample) int64 { return s.Heap }},
	{"host, RSS", hostBound, 6 * mib, func(s soakSample) int64 { return s.HostRSS }},
	{"plugin, anonymous", pluginBound, 2 * mib, func(s soakSample) int64 { return s.PluginAnon }},
	{"plugin, RSS", pluginBound, 2 * mib, func(s soakSample) int64 { return s.PluginRSS }},
}

// judge makes the findings.
func (r *Result) judge() {
	r.Findings = nil
	// The queue fills at first, and a heap follows: the second half is what is
	// asked.
	var down []soakSample
	for _, s := range r.Samples {
		if s.Phase == phaseDown {
			down = append(down, s)
		}
	}
	down = down[len(down)/2:]
	for _, s := range soakSeries {
		r.Findings = append(r.Findings, s.judge(down))
	}
	r.judgeGoroutines(down)
	r.judgeBooks()
}

// judge holds the values against the bound, and looks for a slope that does not
// end: that of the line through all pairs of points (Theil and Sen), which a
// collection at the right moment does not move.
func (s series) judge(down []soakSample) Finding {
	if len(down) < 2 {
		return Finding{What: s.name, Found: "too few samples"}
	}
	var at, values []float64
	for _, sample := range down {
		at = append(at, sample.At.Seconds())
		values = append(values, float64(s.of(sample)))
	}
	slope := theilSen(at, values)
	growth := slope * (at[len(at)-1] - at[0])
	median, most := measure.Median(values), slices.Max(values)
	return Finding{
		What: s.name + ", sink down",
		Found: fmt.Sprintf("median %.1f MiB, most %.1f (bound %d), slope %+.2f MiB/h, that is %+.2f MiB in the %s looked at",
			median/mib, most/mib, s.bound/mib, slope*3600/mib, growth/mib, time.Duration((at[len(at)-1]-at[0])*float64(time.Second)).Round(time.Second)),
		OK: most <= float64(s.bound) && growth <= float64(s.rhythm),
	}
}

// theilSen is the median of the slopes between all pairs of points.
func theilSen(x, y []float64) float64 {
	var slopes []float64
	for i := range x {
		for j := i + 1; j < len(x); j++ {
			if x[j] > x[i] {
				slopes = append(slopes, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	return measure.Median(slopes)
}

// strayGoroutines is how many may come and go.
const strayGoroutines = 8

func (r *Result) judgeGoroutines(down []soakSample) {
	if len(down) == 0 {
		return
	}
	first, last := down[0].Goroutines, down[len(down)-1].Goroutines
	r.Findings = append(r.Findings, Finding{
		What: "host, goroutines, sink down", Found: fmt.Sprintf("%d, later %d", first, last), OK: last <= first+strayGoroutines,
	})
}

func (r *Result) judgeBooks() {
	x := r.Books.Exporters[0]
	err := r.Books.Check()
	found := fmt.Sprintf("%d ended, refused %v, %d accepted: %d delivered, dropped %v, rejected %v, %d waiting",
		r.Books.Ended, r.Books.Refused, r.Books.Accepted, x.Delivered, x.Dropped, x.Rejected, x.Waiting)
	if err != nil {
		found += ": " + err.Error()
	}
	r.Findings = append(r.Findings,
		Finding{What: "the books at the end", Found: found, OK: err == nil && x.Waiting == 0},
		Finding{
			What: "the sink's count", Found: fmt.Sprintf("%d taken, %d delivered by the books", r.Taken, x.Delivered),
			OK: r.Taken == x.Delivered,
		},
		Finding{
			What: "delivered again once the sink is up", Found: fmt.Sprintf("after %s", r.Recovered.Round(10*time.Millisecond)),
			OK: r.Recovered > 0,
		},
		Finding{What: "the plugin", Found: fmt.Sprintf("%d starts, %d crashes", x.Starts, x.Crashes), OK: x.Starts == 1 && x.Crashes == 0})
}
