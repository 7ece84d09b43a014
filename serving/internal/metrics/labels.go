package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// other is the common label value of all requests that get no series of their own.
const other = "_OTHER"

// maxLabel is the greatest length of a label value, in bytes.
const maxLabel = 128

// constrained returns the labels of a vector. The vector passes each label value through
// fit.
func constrained(names []string) prometheus.ConstrainedLabels {
	labels := make(prometheus.ConstrainedLabels, len(names))
	for i, name := range names {
		labels[i] = prometheus.ConstrainedLabel{Name: name, Constraint: fit}
	}
	return labels
}

// fit returns a text as a valid label value: UTF-8 of at most maxLabel bytes.
func fit(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxLabel)], "") // cuts off an incomplete character at the end
}

// bounded holds the series V of each key K, and bounds the number of keys. The first keys, up
// to limit, get their own series. Each later key is replaced by the result of fold, so that
// many keys share the series.
type bounded[K comparable, V any] struct {
	limit int
	fold  func(K) K
	build func(K) V // makes the series of a new key

	mu    sync.RWMutex
	known map[K]V
}

func newBounded[K comparable, V any](limit int, fold func(K) K, build func(K) V) *bounded[K, V] {
	return &bounded[K, V]{limit: limit, fold: fold, build: build, known: map[K]V{}}
}

// keys returns the keys that have series.
func (b *bounded[K, V]) keys() []K {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Keys(b.known))
}

// get returns the series of k. It makes them at the first call for k.
func (b *bounded[K, V]) get(k K) V {
	b.mu.RLock()
	v, ok := b.known[k]
	b.mu.RUnlock()
	if ok {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.known[k]; !ok && len(b.known) >= b.limit {
		k = b.fold(k)
	}
	v, ok = b.known[k]
	if !ok {
		v = b.build(k)
		b.known[k] = v
	}
	return v
}
