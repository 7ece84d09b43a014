package pipeline

import (
	"slices"
	"time"
)

// ways are the queues, and the order in which a batch goes through them: the processors of
// all exporters, and then each exporter, which may have processors of its own before it. An
// item carries the processors that are done with it. Its next queue is the first processor
// of the present list that is not among them. So a batch on its way skips no processor when
// the list changes.
//
// The pipeline's mutex guards the fields. The slices are replaced, never changed.
type ways struct {
	processors []*Queue // of all exporters, in order
	queues     []*Queue // of exporters
	gone       []*Queue // of exporters that have left and may still have batches
	// all are the queues above, the processors of single exporters, and processors that
	// have left.
	all []*Queue
}

// place is the place of a queue on the ways.
type place struct {
	processor bool
	patience  time.Duration // of a processor that fails open, else 0
	// exporter is the exporter that the processor is for; nil: all. own are the
	// processors for this exporter alone, in order.
	exporter *Queue
	own      []*Queue
	left     bool   // the plugin has left the list
	last     uint64 // the last batch for an exporter that has left
}

// join adds an exporter with its own processors.
func (w *ways) join(q *Queue, own []*Queue) {
	for _, o := range own {
		o.place.exporter = q
	}
	q.place.own = own
	w.queues = append(slices.Clone(w.queues), q)
	w.all = slices.Concat(w.all, own, []*Queue{q})
}

// leave removes an exporter. last is the last batch for it.
func (w *ways) leave(q *Queue, last uint64) {
	q.place.last = last
	for _, o := range append(slices.Clip(q.place.own), q) {
		o.place.left = true
	}
	w.queues = without(w.queues, q)
	w.gone = append(slices.Clone(w.gone), q)
}

func (w *ways) setProcessors(list []*Queue) {
	for _, q := range w.processors {
		q.place.left = !slices.Contains(list, q)
	}
	for _, q := range list {
		if !slices.Contains(w.all, q) {
			w.all = append(slices.Clone(w.all), q)
		}
	}
	w.processors = slices.Clone(list)
}

// Inherit takes over the ledger of a queue of the same name, after the end of its plugin.
// q must not have joined.
func Inherit(q, before *Queue) {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	q.books.inherit(&before.books)
	w := &q.p.ways
	w.all, w.gone = without(w.all, before), without(w.gone, before)
}

func without(list []*Queue, q *Queue) []*Queue {
	return slices.DeleteFunc(slices.Clone(list), func(other *Queue) bool { return other == q })
}

// next returns the queues for a batch that the passed processors are done with. The batch
// is on its way to one exporter, or to all if exporter is nil.
func (w *ways) next(passed []*Queue, exporter *Queue, seq uint64) []*Queue {
	if exporter != nil {
		return []*Queue{head(exporter, passed)}
	}
	if i := firstNotIn(passed, w.processors); i >= 0 {
		return w.processors[i : i+1]
	}
	var next []*Queue
	for _, q := range w.queues {
		next = append(next, head(q, passed))
	}
	for _, q := range w.gone {
		if seq <= q.place.last && !q.ending.over {
			next = append(next, head(q, passed))
		}
	}
	return next
}

// head returns the first own processor of an exporter that has not passed a batch, or the
// exporter.
func head(exporter *Queue, passed []*Queue) *Queue {
	if i := firstNotIn(passed, exporter.place.own); i >= 0 {
		return exporter.place.own[i]
	}
	return exporter
}

func firstNotIn(passed, list []*Queue) int {
	return slices.IndexFunc(list, func(q *Queue) bool { return !slices.Contains(passed, q) })
}

// feeds reports whether a batch may come from one queue to another.
func feeds(from, to *Queue) bool {
	f, t := &from.place, &to.place
	switch {
	case !f.processor || from == to:
		return false
	case t.processor && t.exporter == nil:
		return f.exporter == nil && !t.left
	}
	return f.exporter == nil || f.exporter == to || f.exporter == t.exporter
}
