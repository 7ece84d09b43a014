package multiplexing

import (
	"slices"
	"sync"

	"github.com/servetrace/servetrace/serving/internal/scope"
)

// announcements are the model ids that each cache of a replica last sent to the router.
type announcements struct {
	mu  sync.Mutex
	ids map[any][]string // key: the cache
}

type announcementsKey struct{}

func announcementsOf(r *scope.Replica) *announcements {
	return r.Value(announcementsKey{}, func() any { return &announcements{ids: map[any][]string{}} }).(*announcements)
}

// announce sends the model ids to the router and to the metrics. The router also gets
// models that are still loading. The caller must not hold c.mu.
func (c *cache[M]) announce() {
	b := announcementsOf(c.replica)
	// Read the ids under the lock, so that the last caller sends the newest state.
	b.mu.Lock()
	defer b.mu.Unlock()
	held, ready := c.ids()
	c.metrics.Hold(ready)
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

// ids returns the ids of the models that are loading or loaded, and of the loaded
// models alone. Both are sorted.
func (c *cache[M]) ids() (held, ready []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.entries {
		switch e.state {
		case loaded:
			ready = append(ready, id)
			held = append(held, id)
		case loading:
			held = append(held, id)
		case unloading, gone:
		}
	}
	slices.Sort(held)
	slices.Sort(ready)
	return held, ready
}
