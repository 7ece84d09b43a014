package pipeline

import (
	"slices"

	"github.com/servetrace/servetrace/host/internal/spool"
)

// origin has the facts about a batch that its items in all queues share.
type origin struct {
	// instance and number make the id of the batch.
	instance string
	number   uint64
	// records are the places of the batch on disk, and bytes is their size. records is
	// nil if the batch is not on disk.
	records []*spool.Record
	bytes   int64
	open    int // number of deliveries that are not settled; each queue with the batch has one
	// loads and receipt belong to the requests of which the batch was made. Both are
	// nil if its spans came by OnEnd. The pipeline's mutex guards them.
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

// delivery is the progress of one batch in one queue. If the batch is sent in parts,
// its items share the delivery.
type delivery struct {
	origin *origin
	left   int // number of spans that are not settled
	// loading is true while a lane reads the bytes from the spool. gone is true when the
	// item of the whole batch has left the queue.
	loading, gone bool
	// passed are the processors that the batch has passed before. next is used in the
	// queue of a processor: the deliveries in the queues that got the result from it.
	passed []*Queue
	next   map[*Queue]*delivery
}

// passLocked records that the processor q has finished some spans, and has passed on
// some of them to the queues in to. The new deliveries begin with all spans of the
// batch, so spans that the processor did not pass on are settled there at once.
func (d *delivery) passLocked(q *Queue, spans, passed int, to []*Queue) {
	if d.next == nil {
		d.next = map[*Queue]*delivery{}
		d.origin.open-- // open counts the deliveries in the next queues instead
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

// settleLocked records that spans are settled, and go to no further queue.
//
// The batch counts against the bounds of its senders until one exporter has answered
// all of it, or all exporters have dropped it. Otherwise an exporter that only drops
// would let senders overflow the queue of an exporter that works.
func (d *delivery) settleLocked(spans int, dropped bool) {
	d.left -= spans
	for _, next := range d.next {
		next.settleLocked(spans, dropped)
	}
	if d.left > 0 {
		return
	}
	if d.next == nil { // otherwise open counts the deliveries in the next queues
		d.origin.open--
	}
	if d.next == nil && !dropped || d.origin.open == 0 {
		release(d.origin.loads)
	}
}
