package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/internal/otlpwire"
)

// Queue has the batches of one exporter or processor that wait or are in flight, and their
// ledger. The pipeline's mutex guards it, so that one snapshot covers all queues.
//
// putLocked adds an item. Lane.Take takes it with nextLocked, and Lane.Settle ends it, or puts
// it back with againLocked. Some functions take the queue as an argument, because a type
// has at most 20 methods.
type Queue struct {
	p        *Pipeline
	name     string // name of the plugin
	failures *failures.Log
	stage    stage // place of the queue on the way of a batch, see chain.go

	changed  *sync.Cond // signalled when an item is added or settled, or becomes due
	items    backlog
	inFlight map[*Item]struct{}
	ledger   ledger
	timer    *time.Timer // fires when the next item becomes due or too old
	// heldUntil is the end of a pause that the back end has asked for.
	heldUntil time.Time
	outage    outage  // the failures of the back end; during an outage, only probes are sent
	answered  uint64  // number of calls that the plugin has answered, with success or an error
	lanes     []*Lane // the open connections of the plugin, see lane.go
	ending    ending
	taps      []*Tap // the open captures of this queue, which copy its batches for an operator
}

// ending has the reasons to give up batches sooner than usual.
type ending struct {
	hasty    bool // the plugin stops soon: pauses do not grow
	hopeless bool // the plugin cannot start until an operator changes something
	over     bool // all items are dropped at once, see DropRest
}

// unstartable reports whether the plugin stops soon, and cannot be started before that.
func (e ending) unstartable() bool { return e.hasty && e.hopeless }

// NewQueue returns an empty queue for the exporter called name. The caller passes the
// queue to Join. Failures are reported to f.
func NewQueue(p *Pipeline, name string, f *failures.Log) *Queue {
	q := &Queue{p: p, name: name, failures: f, changed: sync.NewCond(&p.mu), inFlight: map[*Item]struct{}{}, ledger: newLedger()}
	q.timer = time.AfterFunc(time.Hour, q.due)
	q.timer.Stop()
	return q
}

// putLocked adds an item. The queue takes over one reference to the batch, which the
// caller has retained.
func (q *Queue) putLocked(it *Item) {
	for _, t := range q.taps {
		t.addLocked(it)
	}
	q.items.push(it)
	q.ledger.accepted += uint64(it.Left())
	q.ledger.add(it)
	switch {
	case q.ending.over:
		q.expireLocked(it.arrived)
	case q.items.oldest() == it:
		q.armLocked(time.Now())
	}
	q.changed.Broadcast() // Signal might wake only Lane.AwaitIdle, which waits here, too
}

// nextLocked returns the item to send next, which stays in the backlog. It returns nil
// if no item is due, or during a pause. Only Lane.Take calls it, and then removes the
// item or cuts a part off it.
func (q *Queue) nextLocked(now time.Time) *Item {
	switch {
	case q.pausedLocked().After(now):
		return nil
	case q.outage.on():
		return q.items.probe(now)
	}
	return q.items.first(now)
}

// cutLocked cuts the next part off a waiting item, within the plugin's limits. The item may
// itself be a part that was cut for an earlier process. A span above the limits becomes a
// part of its own, which the plugin may refuse. Only one part is made at a time, because
// each part repeats resource and scope. Only Lane.Take calls it, with the item of
// nextLocked.
func (q *Queue) cutLocked(now time.Time, whole *Item, lim Limits) *Item {
	data, spans, err := otlpwire.Cut(whole.Batch.data, whole.cut, lim.Spans, lim.Bytes)
	if err != nil { // cannot happen: the bytes were encoded here, or checked before
		q.failures.Note(slog.LevelError, "cut a batch", "error", err)
		q.items.remove(whole)
		q.dropLocked(now, whole, reasonInternal)
		return nil
	}
	whole.parts++
	part := &Item{
		Batch:    newBatch(q.p.mem, data),
		delivery: whole.delivery,
		spans:    spans,
		seq:      whole.seq,
		part:     fmt.Sprintf("%s.%d", whole.part, whole.parts),
		from:     whole.from + whole.cut,
		sealed:   whole.sealed, arrived: whole.arrived,
		// The span that causes the crashes may be in this part or in another.
		suspect: whole.suspect,
	}
	q.ledger.held += part.Batch.Size()
	whole.cut += spans // the number of spans in the queue does not change
	if whole.Left() == 0 {
		q.items.remove(whole)
		q.doneLocked(whole, Outcome{})
	}
	return part
}

// againLocked puts an item that was in flight back into the backlog. It is sent again
// when the pause is over.
func (q *Queue) againLocked(now time.Time, it *Item, pause time.Duration) {
	it.next = now.Add(pause)
	q.items.retry(it)
	if q.ending.over {
		q.expireLocked(now)
	}
	q.armLocked(now)
	q.changed.Broadcast()
}

// deliveredLocked counts an item with an OK answer. Spans that the plugin filtered or its
// back end rejected do not count as delivered. Counts above the size of the batch are
// an error of the plugin, and are reduced.
func deliveredLocked(now time.Time, q *Queue, it *Item, ans Answer) {
	left := uint64(it.Left())
	rest := q.ledger.filterEach(ans.Filtered, left)
	filtered := left - rest
	rejected := min(ans.Rejected, rest)
	left = rest - rejected
	q.ledger.delivered += left
	if ans.Unread != "" {
		q.failures.Failed(now, CodeUnread, "plugin's answer cannot be read; it counts as delivered", ans.Unread)
	}
	remark := cmp.Or(ans.Remark, "it gave no reason")
	switch {
	case rejected > 0:
		q.ledger.rejected[codePartial] += rejected
		q.failures.Rejected(now, codePartial, rejected, "back end took only a part of a batch", remark)
	case ans.Remark != "" || ans.Rejected > 0: // a remark without rejected spans is logged, and costs nothing
		q.failures.Failed(now, codePartial, "back end's remark on a batch that it took", remark)
	case ans.Unread == "":
		q.failures.Delivered(now)
	}
	q.doneLocked(it, Outcome{Delivered: left, Rejected: rejected, Filtered: filtered})
}

// dropLocked counts an item as dropped, or bypasses the processor if it fails open. The
// item must not be in the backlog or in flight.
func (q *Queue) dropLocked(now time.Time, it *Item, why reason) {
	if q.stage.patience > 0 && bypassLocked(now, q, it, why) {
		return
	}
	spans := uint64(it.Left())
	q.ledger.dropped[why] += spans
	q.failures.Dropped(now, spans, why.String())
	q.doneLocked(it, Outcome{Dropped: spans})
}

// doneLocked removes an item from the accounting of the queue and frees it. o is the
// outcome of its spans. It is zero if the spans were moved to parts or to the next
// queues.
func (q *Queue) doneLocked(it *Item, o Outcome) {
	if o != (Outcome{}) {
		it.delivery.settleLocked(it.Left(), o.Dropped > 0)
		it.delivery.origin.receipt.add(o)
		q.p.Spool.settleLocked(q, it)
	}
	q.ledger.remove(it)
	free(q.p.mem, it)
	q.changed.Broadcast()
	q.p.settled.Broadcast()
}

// due is called by the timer, when an item has become due or too old.
func (q *Queue) due() {
	defer q.failures.Write()
	defer q.p.Spool.work()
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	now := time.Now()
	q.expireLocked(now)
	q.armLocked(now)
	q.changed.Broadcast()
}

// armLocked sets the timer to the next moment at which an item becomes due or too old,
// or at which a pause ends.
func (q *Queue) armLocked(now time.Time) {
	next := q.items.wake(now, q.p.cfg.MaxAge, q.stage.patience)
	if next.IsZero() {
		return
	}
	if until := q.pausedLocked(); until.After(now) && until.Before(next) {
		next = until
	}
	q.timer.Reset(max(time.Millisecond, next.Sub(now)))
}

// pausedLocked returns the time until which nothing is sent, because the back end asked
// for a pause or has an outage.
func (q *Queue) pausedLocked() time.Time {
	if q.heldUntil.After(q.outage.until) {
		return q.heldUntil
	}
	return q.outage.until
}

// expireLocked drops the items that have waited longer than Settings.MaxAge, or longer
// than the processor's patience.
func (q *Queue) expireLocked(now time.Time) {
	for oldest := q.items.oldest(); oldest != nil; oldest = q.items.oldest() {
		switch {
		case q.ending.over:
			q.dropOldestLocked(now, reasonShutdown)
		case now.Sub(oldest.sealed) >= q.p.cfg.MaxAge:
			q.dropOldestLocked(now, reasonMaxAge)
		case !now.Before(oldest.tooOld(q.p.cfg.MaxAge, q.stage.patience)):
			q.dropOldestLocked(now, reasonTimeout)
		default:
			return
		}
	}
}

// dropOldestLocked drops the oldest item that waits. There must be one.
func (q *Queue) dropOldestLocked(now time.Time, why reason) {
	it := q.items.oldest()
	q.items.remove(it)
	q.dropLocked(now, it, why)
}

// Resume ends all pauses, because a new connection is open. Items that waited for it
// (parked) begin their backoff.
func (q *Queue) Resume() {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	endPausesLocked(q)
	now := time.Now()
	for _, it := range q.items.again {
		if it.parked {
			it.parked, it.next = false, now.Add(retryPause(it.Attempt, 0))
		}
	}
	q.armLocked(now)
}

// Hasten ends all pauses, because the plugin stops soon. Further pauses do not grow.
// Items that wait for a new connection still wait.
func (q *Queue) Hasten() {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	q.ending.hasty = true
	endPausesLocked(q)
	q.armLocked(time.Now())
}

func endPausesLocked(q *Queue) {
	q.heldUntil, q.outage = time.Time{}, outage{}
	for _, it := range q.items.again {
		if !it.parked {
			it.next = time.Time{}
		}
	}
	q.changed.Broadcast()
}

// Reopen prepares the queue for the plugin that takes it over, after the end of the
// present plugin.
func (q *Queue) Reopen() {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	q.ending.hasty, q.ending.hopeless = false, false
}

// SetHopeless sets whether the plugin cannot be started until the operator changes
// something. Shutdown does not wait for such a plugin.
func (q *Queue) SetHopeless(hopeless bool) {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	q.ending.hopeless = hopeless
	q.p.settled.Broadcast()
}

// Load returns the number of spans in the queue, and the number of batches that were
// sent without success and wait for another attempt.
func (q *Queue) Load() (spans uint64, retries int) {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	return q.ledger.waiting, len(q.items.again)
}

// isEmpty reports whether the queue has no batch with a sequence number up to seq.
func isEmpty(q *Queue, seq uint64) bool {
	for it := range q.inFlight {
		if it.seq <= seq {
			return false
		}
	}
	oldest := q.items.oldest()
	return oldest == nil || oldest.seq > seq
}

// isSettled reports whether this queue, and the queues of the processors before it,
// have settled all batches that were sealed up to the sequence number seq. If the
// plugin of this queue stops, it does not wait for a processor that cannot be started,
// unless the processor fails open.
func isSettled(q *Queue, seq uint64) bool {
	for _, u := range q.p.chain.all {
		waivable := q.ending.hasty && u.ending.hopeless && u.stage.patience == 0
		if !waivable && feeds(u, q) && !isEmpty(u, seq) {
			return false
		}
	}
	return isEmpty(q, seq)
}

// Awaits reports whether some batches up to the sequence number seq are not settled.
func (q *Queue) Awaits(seq uint64) bool {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	return !isSettled(q, seq)
}

// errHopeless is the error of WaitSettled for a plugin that stops and cannot be started.
var errHopeless = errors.New("the plugin is not run as it is")

// WaitSettled blocks until isSettled returns true. It returns early if ctx ends, or if
// the plugin stops and cannot be started. It then returns the number of spans in the
// queue, and the cause.
func (q *Queue) WaitSettled(ctx context.Context, seq uint64) (left uint64, cause error) {
	defer wakeAtEnd(ctx, q)()
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	for !isSettled(q, seq) {
		cause := context.Cause(ctx)
		if q.ending.unstartable() {
			cause = errHopeless
		}
		if cause != nil {
			return q.ledger.waiting, cause
		}
		q.p.settled.Wait()
	}
	return 0, nil
}

// wakeAtEnd wakes all waiting goroutines when ctx ends. The caller must call stop.
func wakeAtEnd(ctx context.Context, q *Queue) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		q.p.mu.Lock()
		defer q.p.mu.Unlock()
		q.changed.Broadcast()
		q.p.settled.Broadcast()
	})
}

// DropRest drops all spans that wait, with the reason shutdown, and also items that come
// later or come back. A processor that fails open passes them on.
func (q *Queue) DropRest() {
	defer q.p.LogNotes()
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	q.timer.Stop()
	q.ending.over = true
	q.expireLocked(time.Now())
}
