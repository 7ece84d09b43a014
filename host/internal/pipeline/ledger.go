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
	reasonTimeout  // used only by processors that fail open
	reasonRejected // used only by processors
	reasonCount
)

var reasonNames = [reasonCount]string{"queue_full", "too_large", "shutdown", "max_age", "internal", "quarantined", "spool", "timeout", "rejected"}

// String returns the reason's name in Stats.
func (r reason) String() string { return reasonNames[r] }

// codePartial takes the place of a gRPC code for spans that the back end rejected in an
// OK answer.
const codePartial = "PARTIAL_SUCCESS"

// CodeUnread is the code of an OK answer that cannot be read.
const CodeUnread = "UNREADABLE"

// ledger is the accounting of one exporter or processor. The number of waiting spans is
// counted, and never computed from the other numbers, so that the balance proves that no
// span is missing.
type ledger struct {
	accepted uint64 // number of spans that came into the queue

	waiting uint64 // number of spans in the backlog and in flight
	held    int64  // memory of these spans, in bytes
	sending int64  // memory of the spans in flight, in bytes
	stored  int64  // bytes on disk of the batches that are not settled

	// recovered is the number of spans that an earlier process has left on disk.
	// spooled is the number of spans that this process has left on disk for the next
	// process.
	recovered, spooled uint64

	delivered          uint64 // delivered by an exporter, or passed on by a processor
	rejected, filtered map[string]uint64
	dropped, bypassed  [reasonCount]uint64
	quarantined        uint64 // number of batches that were dropped because they crash the plugin
	calls              callCounts
}

func newLedger() ledger {
	return ledger{rejected: map[string]uint64{}, filtered: map[string]uint64{}, calls: callCounts{answers: map[string]uint64{}}}
}

// add adds an item that comes into the queue to the waiting spans and to the bytes.
func (l *ledger) add(it *Item) {
	l.waiting += uint64(it.Left())
	l.held += it.size()
	if it.stored() {
		l.stored += it.delivery.origin.bytes
	}
}

// remove ends the count of an item that leaves the queue.
func (l *ledger) remove(it *Item) {
	l.waiting -= uint64(it.Left())
	l.held -= it.size()
}

// inherit takes over the counts of before, a plugin of the same name that has ended. No
// spans wait in the queue of before.
func (l *ledger) inherit(before *ledger) {
	l.accepted, l.delivered, l.rejected, l.filtered = before.accepted, before.delivered, before.rejected, before.filtered
	l.dropped, l.bypassed = before.dropped, before.bypassed
	l.quarantined, l.calls, l.recovered, l.spooled = before.quarantined, before.calls, before.recovered, before.spooled
}

// Bounds of the processor names that an answer of a plugin can add to the ledger.
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

// filterEach counts filtered spans by processor, but no more than most spans in all. It
// returns most minus the number of counted spans.
func (l *ledger) filterEach(by map[string]uint64, most uint64) (rest uint64) {
	for processor, n := range by {
		if n = min(n, most); n > 0 {
			l.filter(processor, n)
			most -= n
		}
	}
	return most
}

// QueueStats are the counts of spans of one exporter or processor. Package host documents
// them.
type QueueStats struct {
	Accepted, Recovered, Spooled uint64
	Delivered, Waiting, InFlight uint64
	Rejected, Filtered           map[string]uint64
	Dropped, Bypassed            map[string]uint64
	InFlightBatches              int
	Quarantined                  uint64
	HeldBytes                    int64
	HeldUntil                    time.Time
	Answers                      map[string]uint64
	Calls                        Durations
}

// statsLocked returns the statistics of the queue. undrained is the number of accepted
// spans that will come into this queue, and are still in a list or in an open batch.
func (q *Queue) statsLocked(undrained uint64) QueueStats {
	l := &q.ledger
	s := QueueStats{
		Accepted:        l.accepted + undrained,
		Recovered:       l.recovered,
		Spooled:         l.spooled,
		Delivered:       l.delivered,
		Rejected:        maps.Clone(l.rejected),
		Filtered:        maps.Clone(l.filtered),
		Dropped:         map[string]uint64{},
		Bypassed:        map[string]uint64{},
		Waiting:         undrained + l.waiting,
		Quarantined:     l.quarantined,
		InFlightBatches: len(q.inFlight),
		HeldBytes:       l.held,
	}
	if q.heldUntil.After(time.Now()) {
		s.HeldUntil = q.heldUntil
	}
	for it := range q.inFlight {
		s.InFlight += uint64(it.Left())
	}
	addReasons(s.Dropped, &l.dropped)
	addReasons(s.Bypassed, &l.bypassed)
	s.Answers, s.Calls = l.calls.stats()
	return s
}

func addReasons(to map[string]uint64, counts *[reasonCount]uint64) {
	for r, n := range counts {
		if n > 0 {
			to[reason(r).String()] += n
		}
	}
}
