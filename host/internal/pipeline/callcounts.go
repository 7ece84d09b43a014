package pipeline

import (
	"maps"
	"time"
)

// Durations is a histogram. Package host documents it.
type Durations struct {
	Count   uint64
	Sum     time.Duration
	Buckets map[time.Duration]uint64
}

// callBounds are the upper bounds of the buckets of the histogram. The first is for a
// plugin that only writes to memory, the last is the default deadline of a call.
var callBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// These stand for a gRPC code in the counts of calls that have no error code.
const (
	answerOK   = "OK"
	answerLost = "LOST"
)

type callCounts struct {
	answers map[string]uint64
	total   uint64
	sum     time.Duration
	within  [len(callBounds)]uint64 // number of calls in each bucket; a call is in the smallest bucket that is large enough
}

func (c *callCounts) count(ans Answer) {
	kind := answerOK
	switch {
	case ans.Lost && !ans.Said:
		kind = answerLost
	case ans.Err != nil:
		kind = ans.Err.Code
	}
	c.answers[kind]++
	c.total++
	c.sum += ans.Took
	for i, bound := range callBounds {
		if ans.Took <= bound {
			c.within[i]++
			return
		}
	}
}

// stats returns a copy of the counts.
func (c *callCounts) stats() (answers map[string]uint64, durations Durations) {
	d := Durations{Count: c.total, Sum: c.sum, Buckets: make(map[time.Duration]uint64, len(callBounds))}
	sum := uint64(0)
	for i, bound := range callBounds {
		sum += c.within[i]
		d.Buckets[bound] = sum
	}
	return maps.Clone(c.answers), d
}
