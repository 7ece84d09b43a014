package pipeline

import (
	"slices"
	"time"
)

// chain has the queues, in the order in which a batch goes through them: first the
// processors that all exporters share, and then each exporter, which may have processors
// of its own before it. Each delivery lists the processors that the batch has passed.
// The next queue is the first processor of the present list that the batch has not
// passed. So a batch skips no processor when the list changes.
//
// The pipeline's mutex guards the fields. The slices are replaced, never changed.
type chain struct {
	processors []*Queue // queues of the processors that all exporters share, in order
	queues     []*Queue // queues of exporters
	gone       []*Queue // queues of exporters that have left the list and may still have batches
	// all are the queues above, the queues of processors for a single exporter, and the
	// queues of processors that have left the list.
	all []*Queue
}

// stage is the position of a queue on the way of a batch through processors to the
// exporters.
type stage struct {
	processor bool
	patience  time.Duration // longest time that a batch waits for a processor that fails open, else 0
	// exporter is set for a processor that runs for one exporter only. own is set for
	// an exporter: its own processors, in order.
	exporter *Queue
	own      []*Queue
	gone     bool   // the plugin has left the list
	last     uint64 // sequence number of the last batch that an exporter still gets after it has left the list
}

// join adds an exporter, and the processors that run for this exporter only.
func (c *chain) join(q *Queue, own []*Queue) {
	for _, o := range own {
		o.stage.exporter = q
	}
	q.stage.own = own
	c.queues = append(slices.Clone(c.queues), q)
	c.all = slices.Concat(c.all, own, []*Queue{q})
}

// leave removes an exporter and its own processors. last is the sequence number of the
// last batch that they get.
func (c *chain) leave(q *Queue, last uint64) {
	q.stage.last = last
	for _, o := range append(slices.Clip(q.stage.own), q) {
		o.stage.gone = true
	}
	c.queues = without(c.queues, q)
	c.gone = append(slices.Clone(c.gone), q)
}

// setProcessors replaces the processors that all exporters share.
func (c *chain) setProcessors(list []*Queue) {
	for _, q := range c.processors {
		q.stage.gone = !slices.Contains(list, q)
	}
	for _, q := range list {
		if !slices.Contains(c.all, q) {
			c.all = append(slices.Clone(c.all), q)
		}
	}
	c.processors = slices.Clone(list)
}

// Inherit continues the accounting of the queue before in q. The plugin of before has
// the same name and has ended. q must not have joined the pipeline.
func Inherit(q, before *Queue) {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	q.ledger.inherit(&before.ledger)
	c := &q.p.chain
	c.all, c.gone = without(c.all, before), without(c.gone, before)
}

func without(list []*Queue, q *Queue) []*Queue {
	return slices.DeleteFunc(slices.Clone(list), func(other *Queue) bool { return other == q })
}

// next returns the queues that a batch is put on after the processors in passed. If
// exporter is not nil, the batch goes to this exporter only. seq is the sequence number
// of the batch.
func (c *chain) next(passed []*Queue, exporter *Queue, seq uint64) []*Queue {
	if exporter != nil {
		return []*Queue{head(exporter, passed)}
	}
	if i := firstNotIn(passed, c.processors); i >= 0 {
		return c.processors[i : i+1]
	}
	var next []*Queue
	for _, q := range c.queues {
		next = append(next, head(q, passed))
	}
	for _, q := range c.gone {
		if seq <= q.stage.last && !q.ending.over {
			next = append(next, head(q, passed))
		}
	}
	return next
}

// head returns the first queue of an exporter that a batch has not passed: one of its
// own processors, or the exporter itself.
func head(exporter *Queue, passed []*Queue) *Queue {
	if i := firstNotIn(passed, exporter.stage.own); i >= 0 {
		return exporter.stage.own[i]
	}
	return exporter
}

func firstNotIn(passed, list []*Queue) int {
	return slices.IndexFunc(list, func(q *Queue) bool { return !slices.Contains(passed, q) })
}

// feeds reports whether a batch may move from one queue to another.
func feeds(from, to *Queue) bool {
	f, t := &from.stage, &to.stage
	switch {
	case !f.processor || from == to:
		return false
	case t.processor && t.exporter == nil:
		return f.exporter == nil && !t.gone
	}
	return f.exporter == nil || f.exporter == to || f.exporter == t.exporter
}
