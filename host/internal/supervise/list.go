package supervise

import (
	"slices"
	"sync"
)

// guardedList is a list with a mutex. The zero value is empty. Safe for concurrent use.
type guardedList[T comparable] struct {
	mu    sync.Mutex
	items []T
}

func (l *guardedList[T]) add(item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, item)
}

func (l *guardedList[T]) remove(item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = slices.DeleteFunc(l.items, func(other T) bool { return other == item })
}

// all returns a copy of the list.
func (l *guardedList[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}
