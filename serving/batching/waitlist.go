package batching

import (
	"container/list"
	"context"
	"iter"
	"time"

	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// state is the stage of an item's life.
type state uint8

const (
	waiting   state = iota // in a group
	running                // in a batch
	answered               // the answer of the item is ready
	abandoned              // the caller of the item has returned, or is about to return
)

// item is the input and the answer of one request.
type item[In, Out any] struct {
	ctx     context.Context
	in      In
	arrived time.Time
	request *Request[In, Out] // nil if the item belongs to a Batcher and not to a StreamBatcher
	done    chan struct{}     // closed when the answer is ready; streams do not use it
	out     Out               // written before done is closed
	err     error             // written before done is closed

	// The queue's mu guards the fields below.
	state state
	group *group[In, Out] // nil unless the item waits
	place *list.Element   // place in the group
	batch *batch[In, Out] // nil until the item is in a batch
}

// waitlist holds a queue's waiting items by model. The queue's mu guards it.
type waitlist[In, Out any] struct {
	metrics *metrics.Batcher
	sized   bool // the queue has a size function

	byModel map[string]*group[In, Out] // models with an id; empty groups are removed
	noModel group[In, Out]             // items without a model id; most queues have only these
	n       int                        // number of items in all groups
}

// group has the items that wait for one model.
type group[In, Out any] struct {
	model string
	items list.List // the values are *item, in order of arrival

	// The fields below are used only with a size function. fits is the number of first items
	// that fit into a batch together, and size is their size. full means that no further
	// item fits. limit is the maximum size for which they were measured.
	fits, size int
	full       bool
	limit      int
}

func (w *waitlist[In, Out]) add(it *item[In, Out], model string) *group[In, Out] {
	g := &w.noModel
	if model != "" {
		g = w.byModel[model]
		if g == nil {
			g = &group[In, Out]{model: model}
			w.byModel[model] = g
		}
	}
	it.group, it.place, it.state = g, g.items.PushBack(it), waiting
	w.n++
	w.metrics.Queued(1)
	return g
}

func (w *waitlist[In, Out]) remove(it *item[In, Out]) {
	g := it.group
	g.items.Remove(it.place)
	it.group, it.place = nil, nil
	g.fits, g.size, g.full = 0, 0, false // measure the remaining items again
	w.n--
	w.metrics.Queued(-1)
	if g.items.Len() == 0 && g.model != "" {
		delete(w.byModel, g.model)
	}
}

// groups yields all groups. The group without a model is the first, and may be empty.
func (w *waitlist[In, Out]) groups() iter.Seq[*group[In, Out]] {
	return func(yield func(*group[In, Out]) bool) {
		if !yield(&w.noModel) {
			return
		}
		for _, g := range w.byModel {
			if !yield(g) {
				return
			}
		}
	}
}

// ready returns a group with a batch that is due: the group has limit items, or its first
// item has waited for the duration wait. If several groups are due, it returns the group
// with the earliest first item. If none is due, it returns the time at which the next group
// will be due.
func (w *waitlist[In, Out]) ready(now time.Time, wait time.Duration, limit int) (ready *group[In, Out], due time.Time) {
	for g := range w.groups() {
		if g.items.Len() == 0 {
			continue
		}
		full := g.full || !w.sized && g.items.Len() >= limit
		arrived := g.first().arrived
		end := arrived.Add(wait)
		switch {
		case full || !end.After(now):
			if ready == nil || arrived.Before(ready.first().arrived) {
				ready = g
			}
		case due.IsZero() || end.Before(due):
			due = end
		}
	}
	return ready, due
}

// unmeasured returns a group with an item that has not been measured, or nil.
func (w *waitlist[In, Out]) unmeasured(limit int) *group[In, Out] {
	for g := range w.groups() {
		if g.limit != limit {
			g.limit, g.fits, g.size, g.full = limit, 0, 0, false
		}
		if !g.full && g.fits < g.items.Len() {
			return g
		}
	}
	return nil
}

// take forms a batch of the first items of the group. It returns nil if the callers of
// all these items have left, or if the size must be measured again.
func (w *waitlist[In, Out]) take(g *group[In, Out], now time.Time, limit int) *batch[In, Out] {
	most := limit
	if w.sized {
		most = g.fits
		if w.prune(g, most) {
			return nil // with the remaining items, further items may fit
		}
	}
	b := &batch[In, Out]{items: make([]*item[In, Out], 0, min(most, g.items.Len())), limit: limit, size: g.size}
	for g.items.Len() > 0 && len(b.items) < most {
		it := g.first()
		w.remove(it)
		if !w.sized && it.ctx.Err() != nil {
			it.state = abandoned // its caller is about to return
			continue
		}
		it.state, it.batch = running, b
		b.items = append(b.items, it)
	}
	if len(b.items) == 0 {
		return nil
	}
	b.live = len(b.items)
	b.waited = now.Sub(b.items[0].arrived)
	if !w.sized {
		b.size = len(b.items)
	}
	return b
}

// prune removes items with an ended context from the first n items of the group, and
// reports whether it removed any.
func (w *waitlist[In, Out]) prune(g *group[In, Out], n int) (pruned bool) {
	next := g.items.Front()
	for range n {
		it := next.Value.(*item[In, Out])
		next = next.Next()
		if it.ctx.Err() != nil {
			w.remove(it)
			it.state = abandoned // its caller is about to return
			pruned = true
		}
	}
	return pruned
}

// first returns the item that has waited longest. The group must not be empty.
func (g *group[In, Out]) first() *item[In, Out] { return g.items.Front().Value.(*item[In, Out]) }
