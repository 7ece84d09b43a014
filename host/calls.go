package host

import (
	"maps"
	"time"
)

// Durations is a histogram of durations.
type Durations struct {
	// Count is the number of durations, Sum their sum.
	Count uint64
	Sum   time.Duration
	// Buckets counts, by upper bound, the durations that are not longer. It is never
	// nil, and its keys are always the same. The longest bound may not count them all.
	Buckets map[time.Duration]uint64
}

// callBounds are the bounds of the buckets of calls: from a plugin that writes
// to memory to the deadline of a call.
var callBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Answers without a code of a gRPC error.
const (
	answerOK   = "OK"
	answerLost = "LOST"
)

// callBook counts the export calls of one exporter.
type callBook struct {
	answers map[string]uint64
	total   uint64
	sum     time.Duration
	within  [len(callBounds)]uint64 // by the smallest bound that is not exceeded
}

// count counts a call that has ended.
func (c *callBook) count(ans answer) {
	kind := answerOK
	switch {
	case ans.lost && !ans.said:
		kind = answerLost
	case ans.err != nil:
		kind = ans.err.Code
	}
	if c.answers == nil {
		c.answers = map[string]uint64{}
	}
	c.answers[kind]++
	c.total++
	c.sum += ans.took
	for i, bound := range callBounds {
		if ans.took <= bound {
			c.within[i]++
			return
		}
	}
}

// stats returns a copy of the counts.
func (c *callBook) stats() (answers map[string]uint64, durations Durations) {
	d := Durations{Count: c.total, Sum: c.sum, Buckets: make(map[time.Duration]uint64, len(callBounds))}
	sum := uint64(0)
	for i, bound := range callBounds {
		sum += c.within[i]
		d.Buckets[bound] = sum
	}
	answers = maps.Clone(c.answers)
	if answers == nil {
		answers = map[string]uint64{}
	}
	return answers, d
}
