package pipeline

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/servetrace/servetrace/internal/wire"
)

// Limits bound the size of one call to a plugin, and the number of concurrent calls.
type Limits struct {
	Spans, Bytes, Calls int
}

func (l Limits) exceeded(it *Item) bool {
	return it.spans > l.Spans || (len(it.Batch.data) > l.Bytes && it.spans > 1)
}

// Answer is the result of one call to a plugin with a batch.
type Answer struct {
	Err *wire.Error // nil if the batch was delivered or processed
	// Changed is true if the processor has changed the batch. Data is then the new
	// batch, and Spans the number of its spans, which is at most the number in the
	// item.
	Changed  bool
	Data     []byte
	Spans    int
	Rejected uint64 // number of spans of a delivered batch that the back end rejected
	Filtered map[string]uint64
	Remark   string // the back end's text on the spans that it rejected
	Unread   string // fault of an OK answer that cannot be read
	Took     time.Duration
	// Reached is true if gRPC had a connection and took the bytes, so that the plugin
	// may have them. Said is true if the answer came from the plugin, and not from
	// gRPC.
	Reached, Said bool
	// Lost is true if the plugin ended during the call, or if the host stopped.
	Lost bool
}

// Lane is the access of one connection to a queue. A sender takes the queue's items
// (batches or parts of batches) through the lane, and settles each item with the plugin's
// answer. When the connection has ended, Judge decides about the items without an answer.
// The pipeline's mutex guards the lane's fields that change.
type Lane struct {
	q      *Queue
	limits Limits
	leases *leases     // buffers that gRPC holds for the connection
	ending func() bool // reports whether the plugin has ended or is being killed

	mode       Mode
	inFlight   int     // number of items that were taken and not settled
	suspected  bool    // the item in flight may have crashed the plugin (a suspect)
	unanswered []*Item // items that the plugin had received and not answered when it ended
}

// Mode is the number of items that a lane has in flight at a time.
type Mode int

// These are the modes. TakesNone is for the process that waits during a replacement,
// and TakesOne for a new process on probation.
const (
	TakesMany Mode = iota
	TakesOne
	TakesNone
)

// NewLane returns a lane that is not open. The function ending reports whether the
// plugin has ended or is being killed, which the sender may not have noticed yet.
func NewLane(q *Queue, ending func() bool) *Lane {
	return &Lane{q: q, leases: newLeases(), ending: ending}
}

// Open adds the lane to its queue. limits bound the items that it takes.
func (l *Lane) Open(limits Limits) {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.limits = limits
	l.q.lanes = append(l.q.lanes, l)
}

// Take waits until an item is due, and returns it. The item is then in flight until
// Settle. Take returns nil when ctx or the plugin has ended. If an item exceeds the
// plugin's limits, or if an earlier process got parts of it, Take returns the next part and
// leaves the rest in the queue.
func (l *Lane) Take(ctx context.Context) *Item {
	q := l.q
	defer wakeAtEnd(ctx, q)()
	defer q.p.LogNotes() // Take may have dropped a batch of another exporter, to get memory for a part
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	for ctx.Err() == nil && !l.ending() {
		now := time.Now()
		it := q.nextLocked(now)
		if it == nil || it.delivery.loading || !l.hasTurnLocked(it) || !l.hasRoomLocked(it) {
			q.changed.Wait()
			continue
		}
		if it.Batch == nil { // the bytes are only on disk
			q.p.Spool.loadLocked(ctx, q, it)
			continue
		}
		if it.cut > 0 || l.limits.exceeded(it) {
			if it = q.cutLocked(now, it, l.limits); it == nil {
				continue
			}
		} else {
			q.items.remove(it)
		}
		l.addInFlightLocked(it)
		if it.part != "" || it.stored() {
			q.p.makeRoomLocked(now) // the part, or the bytes that were read from disk, need memory in addition
		}
		return it
	}
	return nil
}

// hasTurnLocked reports whether the mode, suspects and an outage allow that an item is
// sent beside the items in flight.
func (l *Lane) hasTurnLocked(it *Item) bool {
	if l.mode == TakesNone {
		return false
	}
	return l.inFlight == 0 || l.mode == TakesMany && !l.suspected && !it.suspect && !l.q.outage.on()
}

// hasRoomLocked reports whether an item fits into the plugin's share of the memory,
// beside the bytes that are in flight or held by gRPC. These bytes cannot be dropped,
// so without this limit a plugin that never answers would use up the memory of other
// exporters. Each connection may always send one item. The sender bounds the bytes that
// gRPC keeps after a call, see Leased.
func (l *Lane) hasRoomLocked(it *Item) bool {
	if l.inFlight == 0 {
		return true
	}
	leased := int64(0)
	for _, lane := range l.q.lanes {
		leased += lane.leases.bytes()
	}
	return max(l.q.ledger.sending, leased)+it.size() <= l.q.p.shareLocked()
}

func (l *Lane) addInFlightLocked(it *Item) {
	l.q.inFlight[it] = struct{}{}
	l.q.ledger.sending += it.Batch.Size()
	l.inFlight++
	l.suspected = it.suspect
}

func (l *Lane) removeInFlightLocked(it *Item) {
	delete(l.q.inFlight, it)
	l.q.ledger.sending -= it.Batch.Size()
	l.inFlight--
	l.suspected = false // a suspect is sent alone, so no other suspect is in flight
	l.q.changed.Broadcast()
}

// Buffers returns the bytes of an item for a gRPC call. They count against the memory
// bound until gRPC puts the buffers back.
func (l *Lane) Buffers(it *Item) mem.BufferSlice { return l.leases.buffer(it.Batch) }

// Settle writes the answer to an item in flight into the ledger, or puts the item back
// into the backlog. If the plugin received the item and ended without an answer, the
// item stays in flight until Judge. Settle reports whether the batch was delivered.
func (l *Lane) Settle(it *Item, ans Answer) (delivered bool) {
	q := l.q
	defer q.p.LogNotes() // the memory for a processor's result may push out a batch of an exporter
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	if ans.Lost && ans.Reached && !ans.Said {
		l.unanswered = append(l.unanswered, it)
		return false
	}
	l.removeInFlightLocked(it)
	if ans.Said || !ans.Lost {
		survived(it, ans.Said) // it does not crash the plugin, see poison.go
	}
	if ans.Said {
		q.answered++
	}
	now := time.Now()
	switch {
	case ans.Err == nil || ans.Err.Final:
		q.outage = outage{} // the back end works
	case ans.Said || !ans.Lost:
		q.outage.missed(now, it.seq, q.ending.hasty)
	}
	switch {
	case ans.Err != nil:
		l.failLocked(now, it, ans)
	case q.stage.processor:
		processedLocked(now, q, it, ans)
	default:
		deliveredLocked(now, q, it, ans)
	}
	q.armLocked(now) // a pause may have begun, and the branches that drop an item set no timer
	return ans.Err == nil
}

// failLocked handles an item after a call that failed: it drops the item, or puts it
// back into the queue.
func (l *Lane) failLocked(now time.Time, it *Item, ans Answer) {
	q, err := l.q, ans.Err
	switch {
	case err.Final && q.stage.processor:
		q.failures.Failed(now, err.Code, "processor refuses a batch, or its result cannot be used", err.Error())
		q.dropLocked(now, it, reasonRejected)
	case err.Final:
		spans := uint64(it.Left())
		q.ledger.rejected[err.Code] += spans
		q.failures.Rejected(now, err.Code, spans, "plugin refuses a batch for good", err.Error())
		q.doneLocked(it, Outcome{Rejected: spans})
	case now.Sub(it.sealed) >= q.p.cfg.MaxAge:
		q.failures.Keep(now, err.Code, err.Error(), 0)
		q.dropLocked(now, it, reasonMaxAge)
	case ans.Lost && !ans.Said: // the plugin had not got the batch when it ended
		q.againLocked(now, it, 0)
	default:
		var asked []any
		if err.After > 0 {
			// The pause is at most MaxAge. Otherwise a back end that asked for hours would not
			// be used again soon after its recovery.
			if until := now.Add(min(err.After, q.p.cfg.MaxAge)); until.After(q.heldUntil) {
				q.heldUntil = until
			}
			asked = []any{"retry_after", err.After}
		}
		q.failures.Failed(now, err.Code, "plugin cannot deliver, batches are sent again", err.Error(), asked...)
		attempt := it.Attempt
		if q.ending.hasty {
			attempt = 1
		}
		q.againLocked(now, it, retryPause(attempt, err.After))
	}
}

// retryPause returns the pause before the next attempt: the pause that the back end
// asked for, but at least half of retryFirst. If the back end asked for none, the pause
// grows with the number of attempts.
func retryPause(attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return max(asked, retryFirst/2)
	}
	return Backoff{retryFirst, retryMost}.Pause(attempt - 1)
}

// Close removes the lane from its queue. The caller must have closed the connection. Until
// Close, the bytes that gRPC holds count against the memory bound.
func (l *Lane) Close() {
	l.leases.abandon()
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.q.lanes = slices.DeleteFunc(l.q.lanes, func(other *Lane) bool { return other == l })
}

// SetMode changes the mode, which is TakesMany in a new lane.
func (l *Lane) SetMode(mode Mode) {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.mode = mode
	l.q.changed.Broadcast()
}

// Busy returns the number of items in flight.
func (l *Lane) Busy() int {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	return l.inFlight
}

// AwaitIdle blocks until the lane has no item in flight, or ctx ends.
func (l *Lane) AwaitIdle(ctx context.Context) {
	defer wakeAtEnd(ctx, l.q)()
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	for l.inFlight > 0 && ctx.Err() == nil {
		l.q.changed.Wait()
	}
}

// Count adds a call that has ended to the statistics.
func (l *Lane) Count(ans Answer) {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.q.ledger.calls.count(ans)
}

// Leased returns the number of bytes that gRPC holds for this connection, also of calls
// that have ended. share is the part of the memory that the plugin may use for that.
func (l *Lane) Leased() (bytes, share int64) {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	return l.leases.bytes(), l.q.p.shareLocked()
}

// Forget stops counting the buffers of an item that gRPC will not put back, because the
// connection is broken.
func (l *Lane) Forget(it *Item) { l.leases.forget(it.Batch) }
