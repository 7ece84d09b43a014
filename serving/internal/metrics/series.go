package metrics

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// vectors are the series of the counters and histograms of one Set. The client
// library's own would do, but each of their observations costs three times as
// much, and a request makes three.
type vectors struct {
	descs map[*family]*prometheus.Desc

	mu     sync.Mutex
	series map[*family]map[string]*series // by the values of the labels, joined
}

// series is one counter or one histogram. It is the sum of its parts, so that a
// request which several series tell of counts once.
type series struct {
	values   []string
	counters []counted
	timings  []*timing // of a histogram
}

// counted is a part of a counter.
type counted interface{ count() uint64 }

func newVectors() *vectors {
	v := &vectors{descs: map[*family]*prometheus.Desc{}, series: map[*family]map[string]*series{}}
	for _, f := range families {
		v.descs[f] = prometheus.NewDesc(f.name, f.help, f.labels, nil)
		v.series[f] = map[string]*series{}
	}
	return v
}

// counter gives the series with the values of f's labels, always the same.
func (v *vectors) counter(f *family, values ...string) *tally {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.findLocked(f, values)
	if len(s.counters) == 0 {
		s.counters = []counted{new(tally)}
	}
	return s.counters[0].(*tally)
}

// histogram gives the series with the values of f's labels, always the same.
func (v *vectors) histogram(f *family, values ...string) *timing {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.findLocked(f, values)
	if len(s.timings) == 0 {
		s.timings = []*timing{newTiming(f.buckets)}
	}
	return s.timings[0]
}

// partOf gives a new part of the histogram with the values of f's labels.
func (v *vectors) partOf(f *family, values ...string) *timing {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.findLocked(f, values)
	t := newTiming(f.buckets)
	s.timings = append(s.timings, t)
	return t
}

// counts makes parts, which count already, those of a counter that nobody has by
// its own name.
func (v *vectors) counts(f *family, parts []counted, values ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.findLocked(f, values)
	s.counters = append(s.counters, parts...)
}

func (v *vectors) findLocked(f *family, values []string) *series {
	values = clean(values)
	key := strings.Join(values, "\x00")
	s, known := v.series[f][key]
	if !known {
		s = &series{values: values}
		v.series[f][key] = s
	}
	return s
}

// forget drops every series of a replica.
func (v *vectors) forget(replica ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for f, all := range v.series {
		if !slices.Contains(f.labels, labelReplica) { // which has the three in front
			continue
		}
		for key, s := range all {
			if slices.Equal(s.values[:len(replica)], replica) {
				delete(all, key)
			}
		}
	}
}

// collect puts the series of f into a scrape.
func (v *vectors) collect(f *family, to chan<- prometheus.Metric) {
	v.mu.Lock()
	all := make([]series, 0, len(v.series[f]))
	for _, s := range v.series[f] {
		all = append(all, *s) // parts may be added, and none ever changes
	}
	v.mu.Unlock()
	for _, s := range all {
		m, err := s.metric(v.descs[f])
		if err != nil { // only by a bug: labels are as many as they should be, and clean
			m = prometheus.NewInvalidMetric(v.descs[f], err)
		}
		to <- m
	}
}

func (s series) metric(desc *prometheus.Desc) (prometheus.Metric, error) {
	if len(s.timings) > 0 {
		return histogramOf(s.timings, desc, s.values)
	}
	var count uint64
	for _, c := range s.counters {
		count += c.count()
	}
	return prometheus.NewConstMetric(desc, prometheus.CounterValue, float64(count), s.values...)
}

// tally is one number that only grows.
type tally struct{ n atomic.Uint64 }

func (c *tally) inc() { c.n.Add(1) }

func (c *tally) count() uint64 { return c.n.Load() }

// timing is one histogram, mostly of durations in milliseconds, with a trace as
// an example in each bucket.
type timing struct {
	bounds   []float64
	made     time.Time
	sum      *atomic.Uint64  // in millionths, nanoseconds where the unit is a millisecond; beside the buckets: both change at once
	buckets  []atomic.Uint64 // not cumulative; the last is beyond all bounds
	examples []atomic.Pointer[example]
}

// example is a trace that was as slow as its bucket says.
type example struct {
	ms    float64
	at    time.Time
	after time.Duration // by the clock of observeAt
	span  trace.SpanContext
}

func newTiming(bounds []float64) *timing {
	const line = 8 // in words: of so many together, none shares a cache's line with anybody else's
	n := len(bounds) + 1
	words := make([]atomic.Uint64, (1+n+line-1)/line*line)
	return &timing{
		bounds: bounds, made: time.Now(),
		sum: &words[0], buckets: words[1 : 1+n], examples: make([]atomic.Pointer[example], n),
	}
}

// exampleEvery is how long a bucket keeps its example: a scrape sees the last
// one only, and an example costs an allocation.
const exampleEvery = time.Second

// observe counts d. Where span is sampled it may become the bucket's example.
func (t *timing) observe(d time.Duration, span trace.SpanContext) { t.observeAt(d, 0, span) }

// observeAt is observe for who has just read a clock, the same one each time; 0 for
// who has not.
func (t *timing) observeAt(d, now time.Duration, span trace.SpanContext) {
	ms := float64(d) / float64(time.Millisecond)
	bucket := t.add(ms, int64(d))
	if !span.IsSampled() {
		return
	}
	if now == 0 {
		now = time.Since(t.made)
	}
	last := t.examples[bucket].Load()
	if last != nil && now-last.after < exampleEvery {
		return
	}
	// Where another has just put one, either will do.
	t.examples[bucket].Store(&example{ms: ms, at: time.Now(), after: now, span: span})
}

// observeValue counts a value that is no duration.
func (t *timing) observeValue(value float64) { t.add(value, int64(value*1e6)) }

func (t *timing) add(value float64, millionths int64) (bucket int) {
	for bucket < len(t.bounds) && value > t.bounds[bucket] {
		bucket++
	}
	t.buckets[bucket].Add(1)
	if millionths != 0 {
		t.sum.Add(uint64(millionths))
	}
	return bucket
}

func (t *timing) count() (n uint64) {
	for i := range t.buckets {
		n += t.buckets[i].Load()
	}
	return n
}

// histogramOf gives the sum of timings with the same bounds.
func histogramOf(timings []*timing, desc *prometheus.Desc, values []string) (prometheus.Metric, error) {
	bounds := timings[0].bounds
	var count uint64
	var sum int64
	buckets := make(map[float64]uint64, len(bounds))
	var examples []prometheus.Exemplar
	for i := range len(bounds) + 1 {
		var last *example
		for _, t := range timings {
			count += t.buckets[i].Load()
			if x := t.examples[i].Load(); x != nil && (last == nil || x.at.After(last.at)) {
				last = x
			}
		}
		if i < len(bounds) {
			buckets[bounds[i]] = count
		}
		if last != nil {
			examples = append(examples, last.exemplar())
		}
	}
	for _, t := range timings {
		sum += int64(t.sum.Load())
	}
	m, err := prometheus.NewConstHistogram(desc, count, float64(sum)/1e6, buckets, values...)
	if err != nil || examples == nil {
		return m, err
	}
	return prometheus.NewMetricWithExemplars(m, examples...)
}

func (x *example) exemplar() prometheus.Exemplar {
	return prometheus.Exemplar{
		Value:     x.ms,
		Timestamp: x.at,
		Labels:    prometheus.Labels{"trace_id": x.span.TraceID().String(), "span_id": x.span.SpanID().String()},
	}
}
