package pipeline

import (
	"math/rand/v2"
	"time"
)

// Backoff is a series of pauses that double from First to Most. Each pause is shortened
// at random, at most by half.
type Backoff struct{ First, Most time.Duration }

// Pause returns the pause before attempt n, counted from 0.
func (b Backoff) Pause(n int) time.Duration {
	longest := min(b.Most, b.First<<max(0, min(n, 10)))
	return longest/2 + rand.N(longest/2)
}

// retryFirst and retryMost are the first and the longest pause before a batch is sent
// again. probeFirst and probeMost are the pauses between two calls while the back end
// is away.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
	probeFirst = 200 * time.Millisecond
	// probeMost is less than retryMost. A call each second or two costs little. The
	// recovery must be noticed soon, because the queue may hold the spans of a few seconds
	// only.
	probeMost = 2 * time.Second
)

// A back end that is away answers "later" to every batch. To send each batch to it with
// its own backoff would cost much and achieve nothing. The back end counts as away after
// outageAfter calls in a row without success, if they were for more than one batch and
// lasted for outageLeast. Then one batch is sent at a time, with pauses up to probeMost,
// and the rest wait in the queue. The first other answer ends the outage.
//
//   - A single batch that fails again and again makes no outage: calls with other
//     batches succeed in between, or there is no other batch. The batch has its own
//     backoff.
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

// outage counts the failures of a back end. The zero value means no outage. The
// pipeline's mutex guards it.
type outage struct {
	misses int    // calls in a row without success
	first  uint64 // sequence number of the batch in the first of these calls
	since  time.Time
	more   bool // calls for other batches than the first have failed, too
	away   bool
	probes int // number of calls without success since away was set
	until  time.Time
}

func (o *outage) on() bool { return o.away }

// missed counts a call without success. hasty means that the plugin stops soon: then
// outageLeast does not apply, and the pauses of the outage do not grow.
func (o *outage) missed(now time.Time, seq uint64, hasty bool) {
	if o.misses == 0 {
		o.first, o.since = seq, now
	}
	o.misses++
	o.more = o.more || seq != o.first
	o.away = o.away || o.more && o.misses >= outageAfter && (hasty || now.Sub(o.since) >= outageLeast)
	if !o.away || o.until.After(now) { // no outage, or the call began before the pause and is no probe
		return
	}
	n := o.probes
	if hasty {
		n = 0
	}
	o.probes++
	o.until = now.Add(Backoff{probeFirst, probeMost}.Pause(n))
}
