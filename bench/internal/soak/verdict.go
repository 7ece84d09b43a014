package soak

import (
	"fmt"
	"slices"
	"time"

	"github.com/servetrace/servetrace/bench/internal/measure"
)

// Finding is one check of a soak.
type Finding struct {
	Name  string `json:"what"`
	Found string `json:"found"`
	OK    bool   `json:"ok"`
}

// OK reports whether all checks have succeeded.
func (r *Result) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return !f.OK })
}

func (r *Result) add(name string, ok bool, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Name: name, Found: fmt.Sprintf(format, args...), OK: ok})
}

const mib = 1 << 20

// The bounds of memory. The setting of the queue is 32 MiB, grpc may have 16 MiB of
// its own, and a heap of Go may be twice the live heap.
const (
	queueBound  = 32 * mib
	liveBound   = queueBound + 16*mib
	hostBound   = 2*liveBound + 32*mib // with stacks, code and the runtime
	pluginBound = 32 * mib
	// strayGoroutines is the growth of goroutines that come and go.
	strayGoroutines = 8
)

// series is one kind of memory with its bounds. growth allows for the memory between
// two collections, and for memory that the allocator has not returned yet.
type series struct {
	name          string
	bound, growth int64
	of            func(sample) int64
}

var allSeries = []series{
	{"host, queue (span account)", queueBound, mib, func(s sample) int64 { return s.Queue }},
	{"host, live heap", liveBound, 2 * mib, func(s sample) int64 { return s.Heap }},
	{"host, RSS", hostBound, 6 * mib, func(s sample) int64 { return s.HostRSS }},
	{"plugin, anonymous", pluginBound, 2 * mib, func(s sample) int64 { return s.PluginAnon }},
	{"plugin, RSS", pluginBound, 2 * mib, func(s sample) int64 { return s.PluginRSS }},
}

// judge adds the findings. The queue fills in the first half of the outage, so only
// the second half is checked for growth.
func (r *Result) judge() {
	down := slices.DeleteFunc(slices.Clone(r.Samples), func(s sample) bool { return !s.Down })
	down = down[len(down)/2:]
	quarter := len(down) / 4
	if quarter == 0 {
		r.add("samples", false, "%d, too few", len(down))
		return
	}
	first, last := down[:quarter], down[len(down)-quarter:]
	for _, s := range allSeries {
		most := s.of(slices.MaxFunc(down, func(a, b sample) int { return int(s.of(a) - s.of(b)) }))
		growth := median(last, s.of) - median(first, s.of)
		r.add(s.name+", sink down", most <= s.bound && growth <= float64(s.growth),
			"median %.1f MiB, at most %.1f (bound %d), growth %+.2f MiB (bound %d) from the first quarter of %s to the last",
			median(down, s.of)/mib, float64(most)/mib, s.bound/mib, growth/mib, s.growth/mib, (down[len(down)-1].At - down[0].At).Round(time.Second))
	}
	goroutines := func(s sample) int64 { return s.Goroutines }
	before, after := median(first, goroutines), median(last, goroutines)
	r.add("host, goroutines, sink down", after <= before+strayGoroutines, "%.0f, later %.0f", before, after)
	r.judgeAccount()
}

func median(samples []sample, of func(sample) int64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = float64(of(s))
	}
	return measure.Median(values)
}

func (r *Result) judgeAccount() {
	x := r.Account.Exporters[0]
	err := r.Account.Check()
	r.add("the span account at the end", err == nil && x.Waiting == 0, "%d ended, refused %v, %d accepted: %d delivered, dropped %v, rejected %v, %d waiting, error %v",
		r.Account.Ended, r.Account.Refused, r.Account.Accepted, x.Delivered, x.Dropped, x.Rejected, x.Waiting, err)
	r.add("the sink's count", r.Taken == x.Delivered, "%d received, %d delivered by the span account", r.Taken, x.Delivered)
	r.add("delivered again once the sink is up", r.Recovered > 0, "after %s", r.Recovered.Round(10*time.Millisecond))
	r.add("the plugin", x.Starts == 1 && x.Crashes == 0, "%d starts, %d crashes", x.Starts, x.Crashes)
}
