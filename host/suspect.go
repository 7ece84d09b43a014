package host

import (
	"log/slog"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// A batch that crashes the plugin would crash each of its processes until it is
// too old, and take with it what is in flight beside it. So:
//
//   - What a process had, and gave no answer for, when it crashed is a suspect.
//     What it had answered is not, whatever crashed it, nor what it can not have
//     got. All of it is known before any of it is judged: the senders leave it
//     in flight, and judge comes when the last of them has ended.
//   - The next process gets suspects before all else, one at a time and with
//     nothing beside. The first that a process lives through, by an answer of
//     whatever kind or by still being there when the call's time is over, is a
//     batch like any other again; so suspects never hold up fresh batches for
//     longer than one call each.
//   - One that was alone in flight at two crashes is quarantined: booked as
//     dropped, told, and kept in Config.CrashDir if there is one. In between it
//     may have been a batch like any other: what it did alone counts until a
//     process answers for it. A process that somebody else killed does not count.
//   - Where the plugin has answered for other batches between the two, that one
//     is to blame and not the plugin: both crashes do not count for the breaker,
//     which would keep all that waits behind it from being sent, and growing old.
//     A plugin that crashes on everything answers nothing, so its crashes count.
//
// A crash is an end that nobody asked for, being killed for silence included.
// What ends because the host says so, for its own end or for an upgrade, makes
// no suspects; a new process that crashes in its probation does, and the old
// one gets them alone. A part of a batch is suspected by itself.
//
// A plugin that is attached to has neither suspects nor quarantine. Its lost
// connection may mean a crash, a restart or a change of servers, for its process
// is not ours to see; and other hosts crash it with batches of theirs. What it
// had goes back with the pause of a batch that failed, which begins with the
// next connection, so that others pass before it, and is dropped when it is too
// old.

// mostAlone is the number of crashes that a batch alone in flight is good for.
const mostAlone = 2

// mostIDs bounds the ids of batches in a report.
const mostIDs = mostConcurrency

// survived takes the suspicion from an item whose process is still there, or
// has answered for it.
func (it *item) survived(said bool) {
	it.suspect = false
	if said {
		it.alone = 0
	}
}

// judge decides what becomes of the items that the plugin of l had, and gave no
// answer for, when it went or when the host stopped. The last call on l has
// ended.
func (x *exporter) judge(l *link) {
	crashed := l.lost() && x.ctx.Err() == nil
	blamed := crashed && mayBeToBlame(l.peer.Report())
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	list := l.unanswered
	l.unanswered = nil
	for _, it := range list {
		x.landLocked(l, it)
		switch {
		case !crashed || l.peer.Leaving():
			it.suspect = false
			x.againLocked(now, it, 0)
		case x.entry.attached:
			it.parked = true
			x.againLocked(now, it, x.host.cfg.MaxAge) // or unpark
		default:
			x.suspectLocked(now, l, it, blamed && len(list) == 1)
		}
	}
	x.expireLocked(now)
	x.armLocked(now)
}

// unpark begins the pauses of what was lost with the last connection, and ends
// that of the back end, and its outage: the new process may have another.
func (x *exporter) unpark() {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	x.heldUntil, x.outage = time.Time{}, outage{}
	for _, it := range x.queue.again {
		if it.parked {
			it.parked, it.next = false, now.Add(retryPause(it.attempt, nil))
		} else {
			it.next = time.Time{}
		}
	}
	x.armLocked(now)
}

// mayBeToBlame tells whether a process may have ended by what it had to do. One
// that somebody killed did not: nobody but the kernel, which says so, kills it
// for its memory.
func mayBeToBlame(r launch.Report) bool {
	if r.Killed != "" || r.OOM {
		return true
	}
	switch r.Signal {
	case "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP":
		return false
	}
	return true
}

// suspectLocked makes an item that was in flight at a crash a suspect, or
// quarantines it.
func (x *exporter) suspectLocked(now time.Time, l *link, it *item, alone bool) {
	id := it.id(x.host.instance)
	if len(l.atCrash) < mostIDs {
		l.atCrash = append(l.atCrash, id)
	}
	it.suspect = true
	if alone {
		if it.alone == 0 {
			it.answered = x.answered
		}
		it.alone++
	}
	if it.alone < mostAlone {
		x.againLocked(now, it, 0)
		return
	}
	x.books.quarantined++
	if x.answered > it.answered {
		l.blameless = true
		x.breaker.forgive() // the crash before
	}
	path, err := x.host.keeper.keepBatch(x.entry.name, now, id, it.b)
	if err != nil {
		x.noteLocked(slog.LevelError, notKept, "error", err)
	}
	args := []any{"batch", id, "spans", it.left(), "bytes", len(it.b.data), "attempts", it.attempt}
	if path == "" {
		args = append(args, "kept", "no, see "+EnvCrashDir)
	} else {
		args = append(args, "file", path, "replay", "servetrace plugin run "+x.plugin.path+" --format proto --spans "+path)
	}
	x.noteLocked(slog.LevelError, "a batch is quarantined: the plugin crashed twice while it had nothing else", args...)
	x.dropLocked(now, it, reasonQuarantined)
}
