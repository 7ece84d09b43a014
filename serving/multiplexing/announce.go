package multiplexing

import (
	"slices"
	"sync"

	"github.com/servetrace/servetrace/serving/internal/scope"
)

// board is what a replica has told its router: the models of all of its caches.
type board struct {
	mu  sync.Mutex
	ids map[any][]string // by cache
}

type boardKey struct{}

func boardOf(r *scope.Replica) *board {
	return r.Value(boardKey{}, func() any { return &board{ids: map[any][]string{}} }).(*board)
}

// announce tells router and metrics which models there are. The router learns of
// those that are being loaded too. It is called without the cache's mu.
func (c *cache[M]) announce() {
	b := boardOf(c.replica)
	// Whoever is last here tells what is so now.
	b.mu.Lock()
	defer b.mu.Unlock()
	held, there := c.ids()
	c.metrics.Hold(there)
	if slices.Equal(b.ids[c], held) {
		return
	}
	b.ids[c] = held
	var all []string
	for _, ids := range b.ids {
		all = append(all, ids...)
	}
	slices.Sort(all)
	c.replica.SetModels(slices.Compact(all))
}

// ids gives the models that are held, and of those the ones that are loaded, both
// in order.
func (c *cache[M]) ids() (held, there []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.entries {
		switch e.state {
		case loaded:
			there = append(there, id)
			held = append(held, id)
		case loading:
			held = append(held, id)
		case unloading, gone:
		}
	}
	slices.Sort(held)
	slices.Sort(there)
	return held, there
}
