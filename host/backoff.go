package host

import (
	"math/rand/v2"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// backoff is a series of pauses that double from first to most. Half of each pause
// is random.
type backoff struct{ first, most time.Duration }

// pause returns the pause before attempt n, counted from 0.
func (b backoff) pause(n int) time.Duration {
	longest := min(b.most, b.first<<max(0, min(n, 10)))
	return longest/2 + rand.N(longest/2)
}

// Backoff of a batch that is sent again, of a back end that is away, and of the
// starts of a plugin. The longest pause of a plugin is manner.mostPause.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
	probeFirst = 200 * time.Millisecond
	// probeMost is less than retryMost: a call each second or two costs nothing, and
	// a queue that is bounded in bytes may hold the spans of a few seconds only.
	probeMost    = 2 * time.Second
	restartFirst = 200 * time.Millisecond
)

// A back end that is away answers "later" to every batch. To send each batch to it
// with its own backoff would cost much and achieve nothing. After outageAfter calls
// in a row without success, for more than one batch and for outageLeast, the back
// end counts as away: one batch is sent at a time, with pauses up to probeMost, and
// the rest wait in the queue. The first other answer ends the outage.
//
//   - A batch that alone is put off again and again has its own backoff and makes no
//     outage: there are answers to other batches in between, or no other batch.
//   - A back end that takes one batch in ten still gets all that it takes: one of
//     many calls succeeds within outageLeast.
//   - Each probe is the batch with the fewest attempts. So a bad batch cannot keep an
//     exporter in an outage, and the pause of each batch stays short.
//   - A call that the plugin did not survive does not count. A new process or
//     connection begins without an outage.
const (
	outageAfter = 8
	outageLeast = 2 * time.Second
)

// outage counts the failures of a back end. The zero value is none. The queue's
// mutex guards it.
type outage struct {
	misses int    // calls in a row without success
	first  uint64 // the batch of the first of them
	since  time.Time
	more   bool // another batch failed too
	away   bool
	probes int // misses since the back end counts as away
	until  time.Time
}

// on reports whether the back end counts as away.
func (o *outage) on() bool { return o.away }

// missed counts a call without success. If hasty, which means that the host stops,
// an outage begins at once, and its pauses do not grow.
func (o *outage) missed(now time.Time, seq uint64, hasty bool) {
	if o.misses == 0 {
		o.first, o.since = seq, now
	}
	o.misses++
	o.more = o.more || seq != o.first
	o.away = o.away || o.more && o.misses >= outageAfter && (hasty || now.Sub(o.since) >= outageLeast)
	if !o.away || o.until.After(now) { // the call began before the outage and is no probe
		return
	}
	n := o.probes
	if hasty {
		n = 0
	}
	o.probes++
	o.until = now.Add(backoff{probeFirst, probeMost}.pause(n))
}

// The breaker opens after breakerCrashes crashes within breakerWindow. Then each
// pause before a start is brokenPause, and a process that is steady closes it.
const (
	breakerCrashes = 5
	breakerWindow  = 60 * time.Second
	brokenPause    = 60 * time.Second
)

// breaker finds a plugin that crashes again and again. The zero value is closed. It
// is not safe for concurrent use.
type breaker struct {
	crashes []time.Time // the last ones, the oldest first, while it is closed
	open    bool
}

// crashed counts a crash and reports whether the breaker is open.
func (b *breaker) crashed(now time.Time) bool {
	if b.open {
		return true
	}
	b.crashes = append(b.crashes, now)
	if len(b.crashes) > breakerCrashes {
		b.crashes = b.crashes[1:]
	}
	b.open = len(b.crashes) == breakerCrashes && now.Sub(b.crashes[0]) < breakerWindow
	return b.open
}

// forgive takes back the last crash.
func (b *breaker) forgive() {
	if !b.open && len(b.crashes) > 0 {
		b.crashes = b.crashes[:len(b.crashes)-1]
	}
}

// steady closes the breaker if it is open: a process has lived.
func (b *breaker) steady() {
	if b.open {
		*b = breaker{}
	}
}

// endedByOthers reports whether a process that was ready ended without a fault of
// its code: by a signal from outside, or with status 0, as after such a signal. A
// kill for lack of memory that the kernel has counted is the plugin's fault.
func endedByOthers(r launch.Report) bool {
	inOrder := r.Exit != "" && r.Signal == "" && r.ExitCode == 0 && r.Killed == ""
	return inOrder || !mayBeToBlame(r)
}

// mayBeToBlame reports whether a process may have ended because of its work. A kill
// from outside does not count, except the kernel's for lack of memory.
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
