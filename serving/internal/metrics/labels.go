package metrics

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// other is the value of a label of which there were too many.
const other = "_OTHER"

// mostLabel is the longest value of a label, in bytes.
const mostLabel = 128

// constrained returns the labels of a vector, which makes each value fit.
func constrained(names []string) prometheus.ConstrainedLabels {
	labels := make(prometheus.ConstrainedLabels, len(names))
	for i, name := range names {
		labels[i] = prometheus.ConstrainedLabel{Name: name, Constraint: fit}
	}
	return labels
}

// fit makes a text fit for a label: texts of applications may be anything, and a
// label must be UTF-8.
func fit(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= mostLabel {
		return text
	}
	cut := mostLabel
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// bounded finds series by key. It makes series for as many keys as its limit, and
// for those that fold returns for all other keys.
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
