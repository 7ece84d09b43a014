package pipeline

import (
	"maps"
	"time"
)

type reason int

const (
	reasonQueueFull reason = iota
	reasonTooLarge
	reasonShutdown
	reasonMaxAge
	reasonInternal
	reasonQuarantined
	reasonSpool
	reasonCount
)

var reasonNames = [reasonCount]string{"queue_full", "too_large", "shutdown", "max_age", "internal", "quarantined", "spool"}

// String returns the reason's name in Stats.
func (r reason) String() string { return reasonNames[r] }

// codePartial is the code of spans that an OK answer rejected.
const codePartial = "PARTIAL_SUCCESS"

// codeUnread is the code of an OK answer that makes no sense.
const codeUnread = "UNREADABLE"

// ledger is the delivery accounting of one exporter. It balances with waiting, the number
// of spans in the queue, which is counted, and never computed from the other numbers.
type ledger struct {
	// base is the number of spans that were accepted before the exporter joined. The
	// exporter gets all later spans until it leaves the list. had is the number of
	// spans that it got until then.
	base, had uint64
	left      bool // the exporter has left the list

	waiting uint64 // spans in the backlog and in flight
	held    int64  // bytes of both
	sending int64  // bytes in flight
	stored  int64  // bytes in the spool of batches that are not settled

	// recovered is the number of spans that came from the spool of a process that had
	// ended, and spooled the number of spans that were left there for the next one.
	recovered, spooled uint64

	delivered          uint64
	rejected, filtered map[string]uint64
	dropped            [reasonCount]uint64
	quarantined        uint64 // batches
	calls              callBook
}

func newLedger() ledger {
	return ledger{rejected: map[string]uint64{}, filtered: map[string]uint64{}}
}

// add counts an item that comes into the queue.
func (l *ledger) add(it *Item) {
	l.waiting += uint64(it.Left())
	l.held += it.size()
	if it.stored() {
		l.stored += it.claim.of.bytes
	}
}

// remove ends the count of an item that leaves the queue.
func (l *ledger) remove(it *Item) {
	l.waiting -= uint64(it.Left())
	l.held -= it.size()
}

// leave ends the accounting at arrived, the number of spans that have reached the
// queues. The exporter gets no further spans.
func (l *ledger) leave(arrived uint64) { l.left, l.had = true, arrived-l.base }

// join begins the accounting with the next span. before is the ledger of an ended
// exporter of the same name, or nil. No spans wait in it.
func (l *ledger) join(arrived uint64, before *ledger) {
	if before != nil {
		l.delivered, l.rejected, l.filtered, l.dropped = before.delivered, before.rejected, before.filtered, before.dropped
		l.quarantined, l.calls, l.recovered, l.spooled = before.quarantined, before.calls, before.recovered, before.spooled
		arrived -= before.had // below zero or not: only differences count
	}
	l.base = arrived
}

// Bounds of the names that a plugin can bring into the ledger.
const (
	mostProcessors     = 64
	mostProcessorBytes = 64
	otherProcessors    = "other"
)

// filter counts spans that one processor has filtered. Names beyond the bounds count as
// otherProcessors.
func (l *ledger) filter(processor string, spans uint64) {
	if _, known := l.filtered[processor]; !known && (len(l.filtered) >= mostProcessors || len(processor) > mostProcessorBytes) {
		processor = otherProcessors
	}
	l.filtered[processor] += spans
}

// QueueStats are the counts of spans of one exporter. Package host documents them.
type QueueStats struct {
	Accepted, Recovered, Spooled uint64
	Delivered, Waiting, InFlight uint64
	Rejected, Filtered, Dropped  map[string]uint64
	InFlightBatches              int
	Quarantined                  uint64
	HeldBytes                    int64
	HeldUntil                    time.Time
	Answers                      map[string]uint64
	Calls                        Durations
}

// statsLocked returns the statistics of the queue. arrived is the number of spans that
// have reached the queues, and undrained the number of accepted spans that have not.
func (q *Queue) statsLocked(arrived, undrained uint64) QueueStats {
	books := &q.books
	accepted := arrived - books.base + undrained
	if books.left {
		accepted, undrained = books.had, 0
	}
	s := QueueStats{
		Accepted:        accepted,
		Recovered:       books.recovered,
		Spooled:         books.spooled,
		Delivered:       books.delivered,
		Rejected:        maps.Clone(books.rejected),
		Filtered:        maps.Clone(books.filtered),
		Dropped:         map[string]uint64{},
		Waiting:         undrained + books.waiting,
		Quarantined:     books.quarantined,
		InFlightBatches: len(q.inFlight),
		HeldBytes:       books.held,
	}
	if q.heldUntil.After(time.Now()) {
		s.HeldUntil = q.heldUntil
	}
	for it := range q.inFlight {
		s.InFlight += uint64(it.Left())
	}
	addReasons(s.Dropped, &books.dropped)
	s.Answers, s.Calls = books.calls.stats()
	return s
}

func addReasons(to map[string]uint64, counts *[reasonCount]uint64) {
	for r, n := range counts {
		if n > 0 {
			to[reason(r).String()] += n
		}
	}
}
