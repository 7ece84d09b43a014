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
	waiting   state = iota // the item is in a group of the waitlist
	running                // the item is in a batch
	answered               // the answer of the item is ready
	abandoned              // the caller of the item no longer waits for the answer
)

// item is the input and the answer of one request.
type item[In, Out any] struct {
	ctx     context.Context // context of the request
	in      In
	arrived time.Time         // time at which the item entered the queue
	request *Request[In, Out] // nil if the item belongs to a Batcher and not to a StreamBatcher
	done    chan struct{}     // closed when the answer is ready; nil for a stream
	out     Out               // the answer; written before done is closed
	err     error             // the error, or nil; written before done is closed

	// The queue's mu guards the fields below.
	state state
	group *group[In, Out] // nil unless the item waits
	place *list.Element   // place in the group
	batch *batch[In, Out] // nil until the item is in a batch
}

// waitlist holds the waiting items of a queue, in a group for each multiplexed model. The
// queue's mu guards it.
type waitlist[In, Out any] struct {
	metrics *metrics.Batcher
	sized   bool // the batcher has a size function

	byModel map[string]*group[In, Out] // the groups of models, by id; an empty group is removed
	noModel group[In, Out]             // the items of requests without a model
	n       int                        // number of items in all groups
}

// group holds the waiting items of requests for one model. A batch takes its items from a
// single group.
type group[In, Out any] struct {
	model string    // id of the model; "" for none
	items list.List // the values are *item, in order of arrival

	// The fields below have the result of the size function. Without a size function they are
	// zero.
	fits  int  // number of items, from the first on, that were measured and fit into a batch together
	size  int  // size of these items
	full  bool // no further item fits
	limit int  // maximum batch size at the time of the measurement
}

// add puts an item into the group of the model, and returns the group.
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

// remove removes an item from its group.
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

// groups yields all groups. The first is the group of requests without a model, which may be
// empty.
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

// ready returns a group that is due, because it can fill a batch or because its first item
// has waited for the duration wait. limit is the maximum size of a batch. If several groups
// are due, it returns the group with the first item that has waited longest. If none is due, it
// returns the time at which a group will be due.
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

// unmeasured returns a group with an item that the size function must measure, or nil if
// there is none. It discards measurements for another maximum size than limit.
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

// take forms a batch of the first items of the group. It removes items with a context that
// has ended. It returns nil if no items remain, or if the remaining items must be measured again.
func (w *waitlist[In, Out]) take(g *group[In, Out], now time.Time, limit int) *batch[In, Out] {
	most := limit
	if w.sized {
		most = g.fits
		if w.prune(g, most) {
			return nil // further items may fit in place of the removed items
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

// prune removes each of the first n items of the group if its context has ended. It reports
// whether it has removed any.
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
