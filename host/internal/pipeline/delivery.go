package pipeline

import (
	"slices"

	"github.com/servetrace/servetrace/host/internal/spool"
)

// origin has the facts that all items of one batch share.
type origin struct {
	// instance and number make the id of the batch.
	instance string
	number   uint64
	// records are the parts of the batch in the spool, and bytes their size. nil: the batch
	// is not in the spool.
	records []*spool.Record
	bytes   int64
	open    int // number of deliveries that are not settled: one for each queue that the batch is in
	// loads and receipt belong to the requests that the batch was made of. They are nil for
	// spans of OnEnd. The pipeline's mutex guards them.
	loads   []*load
	receipt *receipt
}

// add adds a record, unless it is nil.
func (o *origin) add(rec *spool.Record) {
	if rec != nil {
		o.records = append(o.records, rec)
		o.bytes += rec.Size()
	}
}

// delivery is the progress of one batch at one exporter or processor. An item and its parts
// share it.
type delivery struct {
	origin *origin
	left   int // number of spans that the exporter is not done with
	// loading is true while a lane reads the bytes from the spool. gone is true when the
	// item of the whole batch has left the queue.
	loading, gone bool
	// passed are the processors that the batch has passed before this queue. In a
	// processor, next has a delivery for each queue that got a part of the batch from it.
	passed []*Queue
	next   map[*Queue]*delivery
}

// passLocked counts spans that the processor q is done with. It adds a delivery for each
// queue that gets the passed spans. In these deliveries, spans that the processor did
// not pass on are settled at once.
func (d *delivery) passLocked(q *Queue, spans, passed int, to []*Queue) {
	if d.next == nil {
		d.next = map[*Queue]*delivery{}
		d.origin.open-- // the deliveries of the next queues count instead
	}
	for _, queue := range to {
		if d.next[queue] == nil {
			d.next[queue] = &delivery{origin: d.origin, left: d.left, passed: append(slices.Clip(d.passed), q)}
			d.origin.open++
		}
	}
	d.left -= spans
	for queue, next := range d.next {
		switch {
		case !slices.Contains(to, queue):
			next.settleLocked(spans, false)
		case passed < spans:
			next.settleLocked(spans-passed, false)
		}
	}
	if len(to) == 0 && d.left == 0 && d.origin.open == 0 {
		release(d.origin.loads)
	}
}

// settleLocked takes spans off the delivery: the exporter or processor is done with
// them, and they go to no further queue. The batch counts against the bounds of its
// senders until one exporter has answered all of it, or all exporters have dropped it.
// Otherwise an exporter that only drops would let senders overflow the queue of an
// exporter that works.
func (d *delivery) settleLocked(spans int, dropped bool) {
	d.left -= spans
	for _, next := range d.next {
		next.settleLocked(spans, dropped)
	}
	if d.left > 0 {
		return
	}
	if d.next == nil { // else the deliveries of the next queues count instead, if there are any
		d.origin.open--
	}
	if d.next == nil && !dropped || d.origin.open == 0 {
		release(d.origin.loads)
	}
}
