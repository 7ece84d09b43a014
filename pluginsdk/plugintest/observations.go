package plugintest

import (
	"slices"
	"sync"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// observations holds the plugin's answers in all rules, for the rules that judge them.
type observations struct {
	exports     sharedList[exportObservation]
	diagnostics sharedList[*pluginv1.Diagnostic]
}

// exportObservation is the answer to one batch.
type exportObservation struct {
	spans  int // number of spans in the batch
	answer Answer
	faults answerFaults
}

// sharedList is a list that is safe for concurrent use. The zero value is empty.
type sharedList[T any] struct {
	mu    sync.Mutex
	items []T
}

func (l *sharedList[T]) add(items ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, items...)
}

// all returns a copy of the items so far, in the order in which they were added.
func (l *sharedList[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}
