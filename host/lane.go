package host

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// errHopeless is the cause of a wait that ends early.
var errHopeless = errors.New("the plugin is not run as it is")

// limits are the sizes of one call to a plugin, and the number of calls at a time.
type limits struct {
	spans, bytes, calls int
}

// limitsOf reads the limits in Describe's answer; zero means the default.
func limitsOf(l *pluginv1.Limits) limits {
	lim := limits{
		spans: int(min(l.GetMaxBatchSpans(), math.MaxInt32)), // int may be as small
		bytes: int(min(l.GetMaxBatchBytes(), math.MaxInt32)),
		calls: int(min(l.GetMaxConcurrency(), mostConcurrency)),
	}
	setDefault(&lim.spans, mostBatchSpans)
	setDefault(&lim.bytes, wire.DefaultMaxBatchBytes)
	setDefault(&lim.calls, wire.DefaultMaxConcurrency)
	return lim
}

// mostConcurrency bounds the calls that a plugin may ask for.
const mostConcurrency = 64

func (l limits) exceeded(b *batch) bool {
	return b.spans > l.spans || (len(b.data) > l.bytes && b.spans > 1)
}

// answer is the result of one call.
type answer struct {
	err      *wire.Error // nil: delivered
	rejected uint64      // of a delivered batch, by the back end
	filtered map[string]uint64
	remark   string // the back end's text on the spans that it rejected
	unread   string // the fault of an OK answer that makes no sense
	took     time.Duration
	// reached: gRPC had a connection and took the bytes, so the plugin may have them.
	// said: the answer is the plugin's own, and not made by gRPC.
	reached, said bool
	// lost: the plugin went away during the call, or the host stopped.
	lost bool
}

// lane is one connection's access to a queue. A sender takes items from it, settles
// each with the plugin's answer, and judges at the end the items without an answer.
// The queue's mutex guards it.
type lane struct {
	q      *queue
	limits limits  // set before open
	leases *leases // of the connection
	// gone reports whether the plugin has ended or is being killed, although the
	// sender may not know it yet.
	gone func() bool

	idle       bool    // takes no item, though the plugin may be ready
	single     bool    // takes one item at a time
	flying     int     // items in flight
	suspected  bool    // the item in flight is a suspect
	unanswered []*item // of those in flight: the plugin had them when it went
}

func newLane(q *queue, l *leases, gone func() bool) *lane {
	return &lane{q: q, leases: l, gone: gone, limits: limitsOf(nil)}
}

// open adds the lane to its queue, and close removes it when the connection is closed:
// what gRPC holds counts until then.
func (l *lane) open() {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.q.lanes = append(l.q.lanes, l)
}

func (l *lane) close() {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.q.lanes = slices.DeleteFunc(l.q.lanes, func(other *lane) bool { return other == l })
}

// set changes whether the lane takes items at all, and whether one at a time.
func (l *lane) set(idle, single bool) {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.idle, l.single = idle, single
	l.q.changed.Broadcast()
}

// busy returns the number of items in flight.
func (l *lane) busy() int {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	return l.flying
}

// awaitIdle blocks until nothing is in flight, or ctx ends.
func (l *lane) awaitIdle(ctx context.Context) {
	defer l.q.wakeAtEnd(ctx)()
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	for l.flying > 0 && ctx.Err() == nil {
		l.q.changed.Wait()
	}
}

// take waits for an item that is due and moves it in flight; nil when ctx has ended,
// or the plugin has. An item beyond the plugin's limits comes in parts, and so does
// the rest of an item of which an earlier process had parts.
func (l *lane) take(ctx context.Context) *item {
	q := l.q
	defer q.p.logNotes() // a part may cost another exporter a batch
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	for ctx.Err() == nil && !l.gone() {
		now := time.Now()
		it := q.nextLocked(now)
		if it == nil || !l.hasTurnLocked(it) || !l.hasRoomLocked(it) {
			q.changed.Wait()
			continue
		}
		if it.cut > 0 || l.limits.exceeded(it.b) {
			if it = q.cutLocked(now, it, l.limits); it == nil {
				continue
			}
			q.p.makeRoomLocked(now) // the part's bytes come on top of the whole's
		} else {
			q.items.remove(it)
		}
		l.flyLocked(it)
		return it
	}
	return nil
}

// hasTurnLocked reports whether an item may be sent beside the items in flight.
func (l *lane) hasTurnLocked(it *item) bool {
	if l.idle {
		return false
	}
	return l.flying == 0 || !l.single && !l.suspected && !it.suspect && !l.q.outage.on()
}

// hasRoomLocked keeps the bytes in flight or with gRPC, which cannot be dropped,
// within the exporter's share of the account: a plugin that never answers must not
// use up the room of the rest. One item may always fly on each connection;
// sender.unburden bounds the bytes that gRPC keeps after a call.
func (l *lane) hasRoomLocked(it *item) bool {
	if l.flying == 0 {
		return true
	}
	leased := int64(0)
	for _, l := range l.q.lanes {
		leased += l.leases.bytes()
	}
	return max(l.q.books.sending, leased)+it.b.size() <= l.q.p.shareLocked()
}

// flyLocked and landLocked count an item among the items in flight, or not any more.
func (l *lane) flyLocked(it *item) {
	l.q.inFlight[it] = struct{}{}
	l.q.books.sending += it.b.size()
	l.flying++
	l.suspected = it.suspect
}

func (l *lane) landLocked(it *item) {
	delete(l.q.inFlight, it)
	l.q.books.sending -= it.b.size()
	l.flying--
	l.suspected = false // a suspect was alone
	l.q.changed.Broadcast()
}

// count counts a call that has ended.
func (l *lane) count(ans answer) {
	l.q.p.mu.Lock()
	defer l.q.p.mu.Unlock()
	l.q.books.calls.count(ans)
}

// settle writes the answer to an item in flight into the ledger, or puts the item
// back into the backlog. An item that the plugin had, and did not answer before it
// went, stays in flight until judge. It reports whether the batch was delivered.
func (l *lane) settle(it *item, ans answer) (delivered bool) {
	q := l.q
	defer q.notes.write()
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	if ans.lost && ans.reached && !ans.said {
		l.unanswered = append(l.unanswered, it)
		return false
	}
	l.landLocked(it)
	if ans.said || !ans.lost {
		it.survived(ans.said)
	}
	if ans.said {
		q.answered++
	}
	now := time.Now()
	switch {
	case ans.err == nil || ans.err.Final:
		q.outage = outage{} // the back end is there
	case ans.said || !ans.lost:
		q.outage.missed(now, it.seq, q.hasty)
	}
	if ans.err == nil {
		q.deliverLocked(now, it, ans)
	} else {
		l.failLocked(now, it, ans)
	}
	q.armLocked(now) // an item that was dropped leaves a pause too
	return ans.err == nil
}

// failLocked settles an item after a call that failed.
func (l *lane) failLocked(now time.Time, it *item, ans answer) {
	q, err := l.q, ans.err
	switch {
	case err.Final:
		q.books.rejected[err.Code] += uint64(it.left())
		q.failures.rejected(now, err.Code, uint64(it.left()), "plugin refuses a batch for good", err.Error())
		q.doneLocked(it)
	case now.Sub(it.sealed) >= q.p.cfg.MaxAge:
		q.failures.keep(now, err.Code, err.Error(), 0)
		q.dropLocked(now, it, reasonMaxAge)
	case ans.lost && !ans.said: // it says nothing about the batch
		q.againLocked(now, it, 0)
	default:
		var asked []any
		if err.After > 0 {
			// The back end is asked again after MaxAge at the latest, so that a pause
			// of hours costs no more than until it is mended.
			if until := now.Add(min(err.After, q.p.cfg.MaxAge)); until.After(q.heldUntil) {
				q.heldUntil = until
			}
			asked = []any{"retry_after", err.After}
		}
		q.failures.failed(now, err.Code, "plugin cannot deliver, batches are sent again", err.Error(), asked...)
		attempt := it.attempt
		if q.hasty {
			attempt = 1
		}
		q.againLocked(now, it, retryPause(attempt, err.After))
	}
}

// retryPause returns the pause that the back end asked for, but at least half of
// retryFirst, else the backoff after an attempt.
func retryPause(attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return max(asked, retryFirst/2)
	}
	return backoff{retryFirst, retryMost}.pause(attempt - 1)
}

// end describes a connection that has ended, for judge.
type end struct {
	crashed  bool // the process ended without being asked to
	blamed   bool // and its work may be the cause
	leaving  bool // it had said that it ends
	attached bool // it is not this host's process
	// quarantine keeps a batch that is given up, and returns attributes for the log.
	quarantine func(now time.Time, id string, it *item) []any
	instance   string
}

// verdict is the result of judge.
type verdict struct {
	ids []string // of the batches that a process had when it crashed
	// blameless: the crash was the doing of a batch that is in quarantine now.
	blameless bool
}

// judge decides about the items that the plugin had, and did not answer, when it went
// or when the host stopped. The last call has ended. See poison.go.
func (l *lane) judge(e end) (v verdict) {
	q := l.q
	defer q.notes.write()
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	now := time.Now()
	list := l.unanswered
	l.unanswered = nil
	for _, it := range list {
		l.landLocked(it)
		switch {
		case !e.crashed || e.leaving:
			it.suspect = false
			q.againLocked(now, it, 0)
		case e.attached:
			it.parked = true
			q.againLocked(now, it, q.p.cfg.MaxAge) // until resume
		default:
			l.suspectLocked(now, it, e, e.blamed && len(list) == 1, &v)
		}
	}
	q.expireLocked(now)
	q.armLocked(now)
	return v
}

// suspectLocked makes an item that was in flight at a crash a suspect, or puts it in
// quarantine.
func (l *lane) suspectLocked(now time.Time, it *item, e end, alone bool, v *verdict) {
	q, id := l.q, it.id(e.instance)
	if len(v.ids) < mostIDs {
		v.ids = append(v.ids, id)
	}
	it.suspect = true
	if alone {
		if it.alone == 0 {
			it.answered = q.answered
		}
		it.alone++
	}
	if it.alone < mostAlone {
		q.againLocked(now, it, 0)
		return
	}
	q.books.quarantined++
	v.blameless = q.answered > it.answered
	args := []any{"batch", id, "spans", it.left(), "bytes", len(it.b.data), "attempts", it.attempt}
	q.notes.add(slog.LevelError, "a batch is quarantined: the plugin crashed twice while it had nothing else",
		append(args, e.quarantine(now, id, it)...)...)
	q.dropLocked(now, it, reasonQuarantined)
}
