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

// series is one counter or one histogram.
type series struct {
	values []string
	tally
	*timing         // of a histogram
	of      *timing // whose count it is, in place of its tally's; or nil
}

func newVectors() *vectors {
	v := &vectors{descs: map[*family]*prometheus.Desc{}, series: map[*family]map[string]*series{}}
	for _, f := range families {
		v.descs[f] = prometheus.NewDesc(f.name, f.help, f.labels, nil)
		v.series[f] = map[string]*series{}
	}
	return v
}

// counter gives the series with the values of f's labels.
func (v *vectors) counter(f *family, values ...string) *tally { return &v.find(f, values, nil).tally }

// histogram gives the series with the values of f's labels.
func (v *vectors) histogram(f *family, values ...string) *timing {
	return v.find(f, values, nil).timing
}

// countOf makes the counter with the values of f's labels what t has observed, which
// counts each request already.
func (v *vectors) countOf(t *timing, f *family, values ...string) { v.find(f, values, t) }

func (v *vectors) find(f *family, values []string, of *timing) *series {
	values = clean(values)
	key := strings.Join(values, "\x00")
	v.mu.Lock()
	defer v.mu.Unlock()
	s, known := v.series[f][key]
	if !known {
		s = &series{values: values, of: of}
		if f.kind == "histogram" {
			s.timing = newTiming(f.buckets)
		}
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
	all := make([]*series, 0, len(v.series[f]))
	for _, s := range v.series[f] {
		all = append(all, s)
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

func (s *series) metric(desc *prometheus.Desc) (prometheus.Metric, error) {
	if s.timing == nil {
		count := s.n.Load()
		if s.of != nil {
			count = s.of.count()
		}
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, float64(count), s.values...)
	}
	return s.timing.metric(desc, s.values)
}

// tally is one number that only grows.
type tally struct{ n atomic.Uint64 }

func (c *tally) inc() { c.n.Add(1) }

// timing is one histogram, mostly of durations in milliseconds, with a trace as
// an example in each bucket.
type timing struct {
	bounds   []float64
	made     time.Time
	buckets  []atomic.Uint64 // not cumulative; the last is beyond all bounds
	sum      atomic.Int64    // in millionths: nanoseconds where the unit is a millisecond
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
	return &timing{
		bounds: bounds, made: time.Now(),
		buckets: make([]atomic.Uint64, len(bounds)+1), examples: make([]atomic.Pointer[example], len(bounds)+1),
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
		t.sum.Add(millionths)
	}
	return bucket
}

func (t *timing) count() (n uint64) {
	for i := range t.buckets {
		n += t.buckets[i].Load()
	}
	return n
}

func (t *timing) metric(desc *prometheus.Desc, values []string) (prometheus.Metric, error) {
	var count uint64
	buckets := make(map[float64]uint64, len(t.bounds))
	for i, bound := range t.bounds {
		count += t.buckets[i].Load()
		buckets[bound] = count
	}
	count += t.buckets[len(t.bounds)].Load()
	m, err := prometheus.NewConstHistogram(desc, count, float64(t.sum.Load())/1e6, buckets, values...)
	if err != nil {
		return nil, err
	}
	var examples []prometheus.Exemplar
	for i := range t.examples {
		if x := t.examples[i].Load(); x != nil {
			examples = append(examples, prometheus.Exemplar{
				Value:     x.ms,
				Timestamp: x.at,
				Labels:    prometheus.Labels{"trace_id": x.span.TraceID().String(), "span_id": x.span.SpanID().String()},
			})
		}
	}
	if examples == nil {
		return m, nil
	}
	return prometheus.NewMetricWithExemplars(m, examples...)
}
