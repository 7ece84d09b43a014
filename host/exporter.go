package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// Backoff of a batch that is to be sent again, see outage.go for that of a back
// end.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
)

// exporter is one entry of the list: its queue, its ledger and its plugin.
type exporter struct {
	host  *Host
	entry entry
	log   *slog.Logger
	// stop ends the plugin's life; run waits for it. Set by newExporter.
	ctx  context.Context
	stop context.CancelCauseFunc
	// endBy bounds the end of the plugin itself. It is written before stop is
	// called and read after.
	endBy context.Context

	// reload asks run for a new process, or for one at once; the answer is nil,
	// or why the old one stays. ended is closed at run's end.
	reload chan chan<- error
	ended  chan struct{}
	// Of run alone: retiring is closed when the process that was replaced has
	// ended, nil: there is none. ran is what the last process was started from.
	retiring <-chan struct{}
	ran      files
	// disk is for looks at the plugin's files.
	disk disk

	// mu is the host's mutex over all queues and ledgers.
	mu      *sync.Mutex
	changed *sync.Cond // something was queued, settled, or became due
	// base is what the Host had accepted before this exporter was there; from
	// then on all is for it, until it has left the list, when it had had so many.
	base, had uint64
	left      bool
	queue     queue
	inFlight  map[*item]struct{}
	waiting   uint64      // spans in queue and inFlight
	held      int64       // bytes of both
	sending   int64       // bytes of inFlight
	timer     *time.Timer // the next item becomes due, or too old
	heldUntil time.Time   // nothing is sent before: the back end wants to be left alone
	outage    outage      // the back end is away, or may be
	books     ledger
	calls     callBook
	answered  uint64 // calls that the plugin has answered, in whatever way
	plugin    pluginInfo
	breaker   breaker
	links     []*link // one, and two while one replaces the other; until they are closed
	// alive are the processes, or connections, that there are; suppressed and
	// unprinted are what these methods of peer came to of those before.
	alive                 []peer
	suppressed, unprinted uint64
	trouble               trouble
	notes                 []note // to be logged once mu is free
}

func newExporter(h *Host, e entry) *exporter {
	x := &exporter{
		host:     h,
		entry:    e,
		log:      h.log.With("plugin", e.name),
		reload:   make(chan chan<- error),
		ended:    make(chan struct{}),
		disk:     newDisk(),
		mu:       &h.mu,
		changed:  sync.NewCond(&h.mu),
		inFlight: map[*item]struct{}{},
		books:    newLedger(),
		endBy:    context.Background(),
	}
	x.ctx, x.stop = context.WithCancelCause(context.Background())
	x.timer = time.AfterFunc(time.Hour, x.due)
	x.timer.Stop()
	return x
}

// putLocked queues a batch, of which the caller has taken a reference for it.
func (x *exporter) putLocked(b *batch, seq uint64, now time.Time) {
	wasEmpty := x.queue.empty()
	x.queue.push(&item{b: b, seq: seq, sealed: now})
	x.waiting += uint64(b.spans)
	x.held += b.size()
	if wasEmpty {
		x.armLocked(now)
	}
	x.changed.Broadcast() // not Signal: waitSettled waits here too
}

// due is the timer's: something has become due or too old.
func (x *exporter) due() {
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	x.expireLocked(now)
	x.armLocked(now)
	x.changed.Broadcast()
}

// armLocked sets the timer to the next moment that matters.
func (x *exporter) armLocked(now time.Time) {
	next := x.queue.wake(now, x.host.cfg.MaxAge)
	if next.IsZero() {
		return
	}
	if until := x.restLocked(); until.After(now) && until.Before(next) {
		next = until
	}
	x.timer.Reset(max(time.Millisecond, next.Sub(now)))
}

// restLocked is until when the back end is to be left alone, because it asked
// for that or is away.
func (x *exporter) restLocked() time.Time {
	if x.heldUntil.After(x.outage.until) {
		return x.heldUntil
	}
	return x.outage.until
}

// holdLocked leaves the back end alone as long as it wants, with whatever batch:
// that is what it asked for. It is asked again each MaxAge, so that one which
// wants hours costs no more than it takes to be mended.
func (x *exporter) holdLocked(now time.Time, wanted time.Duration) {
	if until := now.Add(min(wanted, x.host.cfg.MaxAge)); until.After(x.heldUntil) {
		x.heldUntil = until
	}
}

// hurryLocked ends all pauses, for there is not much time any more.
func (x *exporter) hurryLocked() {
	x.heldUntil, x.outage = time.Time{}, outage{}
	for _, it := range x.queue.again {
		if !it.parked {
			it.next = time.Time{}
		}
	}
	x.changed.Broadcast()
}

// expireLocked drops what has waited too long.
func (x *exporter) expireLocked(now time.Time) {
	for {
		oldest := x.queue.oldest()
		if oldest == nil || now.Sub(oldest.sealed) < x.host.cfg.MaxAge {
			return
		}
		x.dropOldestLocked(now, reasonMaxAge)
	}
}

// dropOldestLocked drops the oldest item of the queue, which must not be empty.
func (x *exporter) dropOldestLocked(now time.Time, why reason) {
	it := x.queue.oldest()
	x.queue.remove(it)
	x.dropLocked(now, it, why)
}

// dropLocked counts an item that is on no list any more as dropped.
func (x *exporter) dropLocked(now time.Time, it *item, why reason) {
	x.droppedLocked(now, uint64(it.left()), why)
	x.doneLocked(it)
}

// doneLocked frees an item whose spans have been booked.
func (x *exporter) doneLocked(it *item) {
	x.waiting -= uint64(it.left())
	x.held -= it.b.size()
	it.b.release()
	x.changed.Broadcast()
}

// take waits for an item that is due and moves it in flight on l; nil when ctx
// has ended, or the plugin has. An item beyond the plugin's limits comes in parts, and so does the
// rest of one of which an earlier process had parts.
func (x *exporter) take(ctx context.Context, l *link) *item {
	defer x.host.tellAll() // cutting may cost another exporter a batch
	x.mu.Lock()
	defer x.mu.Unlock()
	for ctx.Err() == nil && !l.ending() {
		now := time.Now()
		it := x.nextLocked(now)
		if it == nil || !l.hasTurnLocked(it) || !x.mayFlyLocked(l, it) {
			x.changed.Wait()
			continue
		}
		if it.cut > 0 || l.limits.exceeded(it.b) {
			if it = x.cutLocked(now, it, l.limits); it == nil {
				continue
			}
			x.host.makeRoomLocked(now) // the part's bytes come on top of the whole's
		} else {
			x.queue.remove(it)
		}
		x.flyLocked(l, it)
		return it
	}
	return nil
}

// nextLocked gives the item to send next, which stays in the queue; nil if none
// is due, or the back end is to be left alone.
func (x *exporter) nextLocked(now time.Time) *item {
	switch {
	case x.restLocked().After(now):
		return nil
	case x.outage.on():
		return x.queue.probe(now)
	}
	return x.queue.first(now)
}

// flyLocked and landLocked count an item that is taken off the queue, and has
// come back, among those in flight on l.
func (x *exporter) flyLocked(l *link, it *item) {
	x.inFlight[it] = struct{}{}
	x.sending += it.b.size()
	l.flying++
	l.suspected = it.suspect
}

func (x *exporter) landLocked(l *link, it *item) {
	delete(x.inFlight, it)
	x.sending -= it.b.size()
	l.flying--
	l.suspected = false // if there was one, it was alone
	x.changed.Broadcast()
}

// mayFlyLocked keeps what is in flight or with gRPC, and can not be dropped,
// within the exporter's share of the backlog: one that never answers must not
// use up the others' room. One item may always fly on each connection; what
// gRPC keeps beyond its call, unburden bounds.
func (x *exporter) mayFlyLocked(l *link, it *item) bool {
	if l.flying == 0 {
		return true
	}
	leased := int64(0)
	for _, l := range x.links {
		leased += l.leases.bytes()
	}
	return max(x.sending, leased)+it.b.size() <= x.host.shareLocked()
}

// cutLocked cuts the next part within the plugin's limits off an item of the
// queue, which may be a part itself, cut for an earlier process. A span that is
// too large by itself makes a part by itself, which the plugin may refuse.
// Parts are made one at a time, for each repeats resource and scope.
func (x *exporter) cutLocked(now time.Time, whole *item, lim limits) *item {
	data, spans, err := otlpwire.Cut(whole.b.data, whole.cut, lim.spans, lim.bytes)
	if err != nil { // our own encoder wrote these bytes
		x.noteLocked(slog.LevelError, "cut a batch", "error", err)
		x.queue.remove(whole)
		x.dropLocked(now, whole, reasonInternal)
		return nil
	}
	whole.parts++
	part := &item{
		b:      newBatch(x.host.mem, data, spans),
		seq:    whole.seq,
		part:   fmt.Sprintf("%s.%d", whole.part, whole.parts),
		from:   whole.from + whole.cut,
		sealed: whole.sealed,
		// What the whole is suspected of may lie in this part or in another.
		suspect: whole.suspect,
	}
	x.held += part.b.size()
	whole.cut += spans // they are the part's now; waiting stays
	if whole.left() == 0 {
		x.queue.remove(whole)
		x.doneLocked(whole)
	}
	return part
}

// settle books the plugin's answer to an item in flight on l. One that the
// plugin had, and gave no answer for before it went, stays in flight until
// judge.
func (x *exporter) settle(l *link, it *item, ans answer) {
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls.count(ans)
	ans = l.judgeLocked(it, ans)
	if ans.lost && ans.reached && !ans.said {
		l.unanswered = append(l.unanswered, it)
		return
	}
	x.landLocked(l, it)
	if ans.said || !ans.lost {
		it.survived(ans.said)
	}
	now := time.Now()
	if ans.said {
		x.answered++
		l.heardLocked(now)
	}
	hasty := x.plugin.state == StateDraining // no pause grows: there is not much time any more
	switch {
	case ans.err == nil || ans.err.Final:
		x.outage = outage{} // it is there
	case ans.said || !ans.lost:
		x.outage.missed(now, it.seq, hasty)
	}
	switch {
	case ans.err == nil:
		x.deliveredLocked(now, it, ans)
	case ans.err.Final:
		x.degradeLocked(ans.err.Error())
		x.rejectedLocked(now, ans.err.Code, uint64(it.left()), "plugin refuses a batch for good", ans.err.Error())
		x.doneLocked(it)
	case now.Sub(it.sealed) >= x.host.cfg.MaxAge:
		x.degradeLocked(ans.err.Error())
		x.blameLocked(now, ans.err.Code, ans.err.Error(), 0)
		x.dropLocked(now, it, reasonMaxAge)
	case ans.lost && !ans.said: // which says nothing about the batch
		x.againLocked(now, it, 0)
	default:
		x.degradeLocked(ans.err.Error())
		var asked []any
		if ans.err.After > 0 {
			x.holdLocked(now, ans.err.After)
			asked = []any{"retry_after", ans.err.After}
		}
		x.failedLocked(now, ans.err.Code, "plugin can not deliver, batches are sent again", ans.err.Error(), asked...)
		attempt := it.attempt
		if hasty {
			attempt = 1
		}
		x.againLocked(now, it, retryPause(attempt, ans.err))
	}
	x.armLocked(now) // what was dropped leaves a pause too
}

// againLocked has an item that has landed sent again, after a pause.
func (x *exporter) againLocked(now time.Time, it *item, pause time.Duration) {
	it.next = now.Add(pause)
	x.queue.retry(it)
	x.armLocked(now)
	x.changed.Broadcast()
}

// deliveredLocked books an OK: what the plugin filtered or its back end
// rejected is not delivered. Counts beyond the batch are the plugin's error
// and are cut.
func (x *exporter) deliveredLocked(now time.Time, it *item, ans answer) {
	left := uint64(it.left())
	take := func(n uint64) uint64 {
		n = min(n, left)
		left -= n
		return n
	}
	for processor, n := range ans.filtered {
		x.books.filter(processor, take(n))
	}
	rejected := take(ans.rejected)
	x.books.delivered += left
	x.plugin.lastSuccess = now
	if ans.unread != "" {
		x.failedLocked(now, codeUnread, "plugin's answer can not be read; it counts as delivered", ans.unread)
	}
	switch {
	case rejected > 0:
		x.rejectedLocked(now, codePartial, rejected, "back end took only a part of a batch", cmp.Or(ans.remark, "it gave no reason"))
	case ans.remark != "" || ans.rejected > 0: // of spans that were filtered, or of none
		x.failedLocked(now, codePartial, "back end's remark on a batch that it took", cmp.Or(ans.remark, "it gave no reason"))
	case ans.unread == "":
		x.wellLocked(now)
	}
	x.deliversLocked(now)
	x.doneLocked(it)
}

// retryPause is what the back end asked for, but no busy loop, else exponential
// with jitter.
func retryPause(attempt int, err *wire.Error) time.Duration {
	if err != nil && err.After > 0 {
		return max(err.After, retryFirst/2)
	}
	pause := min(retryMost, retryFirst<<max(0, min(attempt-1, 10))) // 0: none reached it
	return pause/2 + rand.N(pause/2)
}

// wakeAtEnd has everybody who waits look again when ctx ends; stop ends that.
func (x *exporter) wakeAtEnd(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.changed.Broadcast()
	})
}

// settledLocked tells whether nothing sealed up to seq is left.
func (x *exporter) settledLocked(seq uint64) bool {
	for it := range x.inFlight {
		if it.seq <= seq {
			return false
		}
	}
	oldest := x.queue.oldest()
	return oldest == nil || oldest.seq > seq
}

var errUnusable = errors.New("the plugin is not run as it is")

// waitSettled blocks until everything sealed up to seq is delivered, rejected
// or dropped. At the end of ctx it says how many spans are left; so it does at the
// end of the exporter, when its plugin cannot be run as it is.
func (x *exporter) waitSettled(ctx context.Context, seq uint64) error {
	defer x.wakeAtEnd(ctx)()
	x.mu.Lock()
	defer x.mu.Unlock()
	for !x.settledLocked(seq) {
		cause := context.Cause(ctx)
		if x.plugin.state == StateDraining && x.plugin.unusable {
			cause = errUnusable
		}
		if cause != nil {
			return fmt.Errorf("plugin %q: %d spans not delivered (state %v): %w", x.entry.name, x.waiting, x.plugin.state, cause)
		}
		x.changed.Wait()
	}
	return nil
}

// dropRest counts everything that is left as lost by shutdown. Nothing may be
// in flight any more.
func (x *exporter) dropRest() {
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.timer.Stop()
	for now := time.Now(); !x.queue.empty(); {
		x.dropOldestLocked(now, reasonShutdown)
	}
}
