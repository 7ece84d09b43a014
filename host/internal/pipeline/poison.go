package pipeline

import (
	"log/slog"
	"time"
)

// A batch that crashes the plugin would crash one process after another until the batch
// is too old. The batches in flight beside it would be sent again each time. Therefore:
//
//   - The batches that a process had and did not answer when it crashed are suspects.
//     Batches that it had answered, or cannot have received, are not. All suspects are
//     known before any is judged: the senders leave them in flight, and Lane.Judge
//     comes after the last call.
//   - The next process gets suspects first, one at a time and with nothing beside. A
//     suspect that a process survives is an ordinary batch again: the process answers
//     it, or is still there when the call's time is over. So each suspect delays fresh
//     batches by one call at most.
//   - A batch that was alone in flight at two crashes goes into quarantine: it counts as
//     dropped, is logged, and is kept in a file if Config.CrashDir is set. It may have
//     been an ordinary batch in between: its crashes count until a process answers it. A
//     kill from outside does not count.
//   - If the plugin has answered other batches between the two crashes, the batch is to
//     blame and not the plugin. Both crashes do not count for the circuit breaker, which
//     would delay all batches. A plugin that crashes on everything answers nothing, so
//     its crashes count.
//
// A crash is an end that the host did not ask for, or a kill of a process that does not
// answer. An end that the host asks for makes no suspects. A new process that crashes on
// probation makes suspects, and the old process gets them one at a time. A part of a
// batch is a suspect by itself.
//
// A plugin that is attached to has neither suspects nor quarantine. A lost connection
// may mean a crash, a restart or another server, and other hosts may crash the process
// with their batches. Its batches go back with the backoff of a batch that failed,
// which begins with the next connection, so that other batches pass before.

// mostAlone is the number of crashes, with a batch alone in flight, after which the batch
// is quarantined.
const mostAlone = 2

// mostIDs bounds the number of batch ids in the report of a crash.
const mostIDs = 64

// survived records that the plugin has survived a call with an item. said is true if
// the plugin has answered it.
func survived(it *Item, said bool) {
	it.suspect = false
	if said {
		it.alone = 0
	}
}

// End describes a connection that has ended, for Judge.
type End struct {
	Crashed  bool // the process ended although the host had not asked for it
	Blamed   bool // the process crashed, and its work may be the cause
	Leaving  bool // the process had announced its end, and took no more calls
	Attached bool // another program has started the process
	// Quarantine stores a batch that goes into quarantine, and returns attributes for the
	// log.
	Quarantine func(now time.Time, id string, it *Item) []any
}

// Verdict is the decision of Judge about a connection that has ended.
type Verdict struct {
	IDs []string // ids of the batches that a process had when it crashed
	// Blameless is true if a batch is the cause of the crash, and not the plugin. The
	// batch is then in quarantine. The plugin has answered other batches since the
	// first crash with this batch.
	Blameless bool
}

// Judge decides about the items that the plugin received and did not answer before it
// ended or the host stopped. The last call must have ended.
func (l *Lane) Judge(e End) (v Verdict) {
	q := l.q
	defer q.p.LogNotes() // Judge may put batches on other queues, if the plugin is a processor that fails open
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	now := time.Now()
	list := l.unanswered
	l.unanswered = nil
	for _, it := range list {
		l.removeInFlightLocked(it)
		switch {
		case !e.Crashed || e.Leaving:
			it.suspect = false
			q.againLocked(now, it, 0)
		case e.Attached:
			it.parked = true
			q.againLocked(now, it, q.p.cfg.MaxAge) // a new connection ends this pause earlier, see Resume
		default:
			l.suspectLocked(now, it, e, e.Blamed && len(list) == 1, &v)
		}
	}
	q.expireLocked(now)
	q.armLocked(now)
	return v
}

// suspectLocked marks an item that was in flight at a crash as a suspect. If this is
// the second crash with nothing else in flight, it puts the batch into quarantine
// instead.
func (l *Lane) suspectLocked(now time.Time, it *Item, e End, alone bool, v *Verdict) {
	q, id := l.q, it.ID()
	if len(v.IDs) < mostIDs {
		v.IDs = append(v.IDs, id)
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
	q.ledger.quarantined++
	v.Blameless = q.answered > it.answered
	args := []any{"batch", id, "spans", it.Left(), "bytes", len(it.Batch.data), "attempts", it.Attempt}
	q.failures.Note(slog.LevelError, "a batch is quarantined: the plugin crashed twice while it had nothing else",
		append(args, e.Quarantine(now, id, it)...)...)
	q.dropLocked(now, it, reasonQuarantined)
}
