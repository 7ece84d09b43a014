package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// other is the value of a label of which there were too many.
const other = "_OTHER"

// table finds series by key. Those that it knows it finds without a lock: the map
// that is in use never changes, and a new key has the whole map copied. It holds
// limit keys, and those that fold gives for the keys beyond.
type table[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	limit int
	fold  func(K) K
	build func(K) V

	mu sync.Mutex // held while a key is added
}

func newTable[K comparable, V any](limit int, fold func(K) K, build func(K) V) *table[K, V] {
	t := &table[K, V]{limit: limit, fold: fold, build: build}
	t.known.Store(&map[K]V{})
	return t
}

func (t *table[K, V]) get(k K) V {
	if v, ok := (*t.known.Load())[k]; ok {
		return v
	}
	return t.add(k)
}

func (t *table[K, V]) add(k K) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.known.Load()
	if len(known) >= t.limit {
		k = t.fold(k)
	}
	if v, ok := known[k]; ok {
		return v
	}
	v := t.build(k)
	grown := maps.Clone(known)
	grown[k] = v
	t.known.Store(&grown)
	return v
}

// timing is one series of durations, with a trace as an example in each bucket.
type timing struct {
	series prometheus.Observer
	bounds []float64
	made   time.Time
	// last is when the example of each bucket was taken, in nanoseconds since
	// made; 0: there is none.
	last []atomic.Int64
}

func newTiming(series prometheus.Observer, bounds []float64) *timing {
	return &timing{series: series, bounds: bounds, made: time.Now(), last: make([]atomic.Int64, len(bounds)+1)}
}

// exampleEvery is how long a bucket keeps its example: a scrape sees the last
// one only, and an example costs ten times an observation.
const exampleEvery = time.Second

// observe counts d. Where span is sampled it may become the bucket's example.
func (t *timing) observe(d time.Duration, span trace.SpanContext) {
	ms := float64(d) / float64(time.Millisecond)
	if !span.IsSampled() || !t.wantsExample(ms) {
		t.series.Observe(ms)
		return
	}
	t.series.(prometheus.ExemplarObserver).ObserveWithExemplar(ms, prometheus.Labels{
		"trace_id": span.TraceID().String(),
		"span_id":  span.SpanID().String(),
	})
}

func (t *timing) wantsExample(ms float64) bool {
	bucket := 0
	for bucket < len(t.bounds) && ms > t.bounds[bucket] {
		bucket++
	}
	now, last := int64(time.Since(t.made)), t.last[bucket].Load()
	if last != 0 && now-last < int64(exampleEvery) {
		return false
	}
	return t.last[bucket].CompareAndSwap(last, max(now, 1)) // else another has just taken it
}

// mostLabel is the longest value of a label, in bytes.
const mostLabel = 128

// clean makes texts fit for labels, in place: those of applications may be
// anything, and a label must be UTF-8.
func clean(texts []string) []string {
	for i, text := range texts {
		text = strings.ToValidUTF8(text, "\uFFFD")
		if len(text) > mostLabel {
			cut := mostLabel
			for !utf8.RuneStart(text[cut]) {
				cut--
			}
			text = text[:cut]
		}
		texts[i] = text
	}
	return texts
}
