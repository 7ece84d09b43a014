package host

import (
	"math/rand/v2"
	"time"
)

// A back end that is away says "later" to every batch, and asking it with each
// of them, at the pace of each, would only cost. So when outageAfter calls in a
// row came to nothing, for more than one batch and outageLeast long, the exporter
// takes it that the back end is away, and not that it minds a batch: it sends one
// batch at a time, with pauses that grow to probeMost, and the others wait in the
// queue. The first answer that is not "later" ends that, and all that is due goes
// out.
//
//   - A batch that is put off again and again while others are taken is its own
//     trouble: it has pauses of its own (retryPause), and makes no outage, for
//     the others' answers come between, or there is no other.
//   - A back end that takes one batch in ten still gets all that it would take, at
//     the pace of each: of many calls one is answered within outageLeast. With one
//     batch at a time it would get a tenth of that.
//   - Each probe is the batch that was tried least. So one that is to blame can
//     not keep an exporter in an outage, and each batch's own pause stays short.
//   - A call that the plugin did not live through says nothing of its back end.
//     A new process, or connection, begins without an outage.
const (
	outageAfter = 8
	outageLeast = 2 * time.Second
	probeFirst  = 200 * time.Millisecond
	// probeMost is less than retryMost: a call each second or two costs nothing,
	// and what a queue that is bounded in bytes holds may be some seconds.
	probeMost = 2 * time.Second
)

// outage is how a back end has failed so far. The zero value is that it has not.
// The host's mutex guards it.
type outage struct {
	misses int    // calls in a row that came to nothing
	first  uint64 // the batch of the first of them
	since  time.Time
	more   bool // another batch was among them
	away   bool
	probes int // misses since the exporter sends one batch at a time
	until  time.Time
}

// on tells whether the back end is taken to be away.
func (o *outage) on() bool { return o.away }

// missed counts a call that came to nothing. hasty: there is not much time any
// more, so an outage is one at once, and pauses do not grow.
func (o *outage) missed(now time.Time, seq uint64, hasty bool) {
	if o.misses == 0 {
		o.first, o.since = seq, now
	}
	o.misses++
	o.more = o.more || seq != o.first
	o.away = o.away || o.more && o.misses >= outageAfter && (hasty || now.Sub(o.since) >= outageLeast)
	if !o.away || o.until.After(now) { // one that was on its way before is no probe
		return
	}
	pause := probeFirst
	if !hasty {
		pause = min(probeMost, probeFirst<<min(o.probes, 10))
	}
	o.probes++
	o.until = now.Add(pause/2 + rand.N(pause/2))
}
