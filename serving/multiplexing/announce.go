package multiplexing

import (
	"slices"
	"sync"

	"github.com/servetrace/servetrace/serving/internal/scope"
)

// announcements holds the model ids that each cache of a replica has last sent to the
// router. A replica may have several caches, one for each Models.
type announcements struct {
	mu  sync.Mutex
	ids map[any][]string // key: the cache
}

type announcementsKey struct{}

// announcementsOf returns the announcements of the replica. The first call makes them.
func announcementsOf(r *scope.Replica) *announcements {
	return r.Value(announcementsKey{}, func() any { return &announcements{ids: map[any][]string{}} }).(*announcements)
}

// announce sends the ids of the loaded models to the metrics. It sends the ids of all models
// that are loaded or loading to the router. The caller must not hold c.mu.
func (c *cache[M]) announce() {
	b := announcementsOf(c.replica)
	// Read the ids under b.mu. Otherwise a slow caller could overwrite newer ids with older
	// ids.
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

// ids returns the ids of the models that are loading or loaded, held, and the ids of the
// models that are loaded, ready. Both are sorted.
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
