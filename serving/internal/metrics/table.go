package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// other is the value of a label of which there were too many.
const other = "_OTHER"

// table finds series by key. Those that it knows it finds without a lock: the map
// that is in use never changes, and a new key has the whole map copied. It holds
// limit keys, and those that fold gives for the keys beyond.
type table[K comparable, V any] struct {
	latest atomic.Pointer[entry[K, V]] // mostly, what was asked for is asked for again
	known  atomic.Pointer[map[K]*entry[K, V]]
	limit  int
	fold   func(K) K
	build  func(K) V

	mu sync.Mutex // held while a key is added
}

// entry never changes.
type entry[K comparable, V any] struct {
	key    K
	series V
}

func newTable[K comparable, V any](limit int, fold func(K) K, build func(K) V) *table[K, V] {
	t := &table[K, V]{limit: limit, fold: fold, build: build}
	t.known.Store(&map[K]*entry[K, V]{})
	return t
}

func (t *table[K, V]) get(k K) V {
	if e := t.latest.Load(); e != nil && e.key == k {
		return e.series
	}
	e, ok := (*t.known.Load())[k]
	if !ok {
		e = t.add(k)
	}
	t.latest.Store(e)
	return e.series
}

func (t *table[K, V]) add(k K) *entry[K, V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.known.Load()
	if len(known) >= t.limit {
		k = t.fold(k)
	}
	if e, ok := known[k]; ok {
		return e
	}
	e := &entry[K, V]{key: k, series: t.build(k)}
	grown := maps.Clone(known)
	grown[k] = e
	t.known.Store(&grown)
	return e
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
