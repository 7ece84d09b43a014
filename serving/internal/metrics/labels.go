package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// other is the value of a label with too many values.
const other = "_OTHER"

// maxLabel is the longest value of a label, in bytes.
const maxLabel = 128

// constrained returns the labels of a vector, which converts each value to a valid one.
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

// bounded holds series by key. The first keys, up to the limit, get series of their own.
// All other keys share the series of the keys that fold returns.
type bounded[K comparable, V any] struct {
	limit int
	fold  func(K) K
	build func(K) V

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
