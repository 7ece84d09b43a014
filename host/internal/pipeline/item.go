package pipeline

import (
	"cmp"
	"fmt"
	"time"
)

// Item is one batch, or a part of a batch, in one queue. The pipeline's mutex guards an
// item that waits. An item in flight belongs to its sender.
type Item struct {
	Batch    *batch    // the bytes of the batch or the part; nil if they are only on disk
	delivery *delivery // progress of the whole batch in this queue; its parts share it
	spans    int       // number of spans, including spans that were moved to parts
	seq      uint64    // sequence number of the batch, in the order of sealing
	part     string    // suffix of the id: "" for the whole batch, ".2" for its second part, ".2.1" for a part of that part
	from     int       // number of spans of the sealed batch before the first span of the item
	sealed   time.Time
	arrived  time.Time // time at which the item came into this queue
	Attempt  int       // number of calls so far that had a connection
	next     time.Time // time of the next attempt; zero if the item may be sent at once
	// cut is the number of spans that were moved from this item to parts, and parts is
	// the number of these parts.
	cut, parts int
	// suspect is true if the item was in flight when a process crashed, until a process
	// survives a call with it. alone counts the crashes with only this item in flight,
	// until a process answers it. See poison.go.
	suspect bool
	alone   int
	// answered is the value of Queue.answered at the first crash that alone counts.
	answered uint64
	// parked is true if the item was in flight when the connection to an attached
	// plugin was lost. It then waits for a new connection.
	parked bool
}

// ID returns the id of the batch, which is the same on every attempt, even if a later
// process sends the batch from the spool.
func (it *Item) ID() string {
	return fmt.Sprintf("%s-%d%s", it.delivery.origin.instance, it.delivery.origin.number, it.part)
}

// size returns the bytes that the memory account counts for the item.
func (it *Item) size() int64 {
	if it.Batch == nil {
		return unloadedBytes
	}
	return it.Batch.Size()
}

// Left returns the number of spans in the item, without the spans that were moved to
// parts.
func (it *Item) Left() int { return it.spans - it.cut }

// tooOld returns the moment at which the item has waited too long: maxAge after its
// batch was sealed. In the queue of a processor that fails open, it is earlier:
// patience after the item came into the queue.
func (it *Item) tooOld(maxAge, patience time.Duration) time.Time {
	end := it.sealed.Add(maxAge)
	if patience > 0 && it.arrived.Add(patience).Before(end) {
		return it.arrived.Add(patience)
	}
	return end
}

// before reports whether the spans of it were sealed before the spans of other.
func (it *Item) before(other *Item) bool {
	return cmp.Or(cmp.Compare(it.seq, other.seq), cmp.Compare(it.from+it.cut, other.from+other.cut)) < 0
}

// free releases the memory of an item that leaves its queue.
func free(m *memory, it *Item) {
	if it.part == "" {
		it.delivery.gone = true
	}
	if it.Batch != nil {
		it.Batch.Release()
	} else {
		m.chargeBatch(-unloadedBytes)
	}
}
