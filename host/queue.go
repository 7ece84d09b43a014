package host

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// item is one batch, or a part of one, on its way to one exporter. The host's
// mutex guards it while it is queued; in flight it belongs to one sender.
type item struct {
	b       *batch
	seq     uint64 // order of sealing
	part    string // empty: the whole batch; ".2": its second part; ".2.1": the first of that
	from    int    // spans of the sealed batch before it
	sealed  time.Time
	attempt int       // calls so far that had a connection
	next    time.Time // not before; zero: at once
	// cut is how many of the batch's spans have gone on as parts already, and
	// parts how many parts that made.
	cut, parts int
	// suspect: it was in flight when a process crashed, and no process has lived
	// through it since. alone counts the crashes at which nothing else was in
	// flight, until a process has answered for it. See suspect.go.
	suspect bool
	alone   int
	// answered is what exporter.answered was at the first of these crashes.
	answered uint64
	// parked: not due before the next connection, see judge.
	parked bool
}

// id names the batch, the same on every attempt.
func (it *item) id(instance string) string {
	return fmt.Sprintf("%s-%d%s", instance, it.seq, it.part)
}

// left is the spans that the item still stands for.
func (it *item) left() int { return it.b.spans - it.cut }

// before is the order of sealing.
func (it *item) before(other *item) bool {
	return cmp.Or(cmp.Compare(it.seq, other.seq), cmp.Compare(it.from+it.cut, other.from+other.cut)) < 0
}

// queue holds what waits for one exporter: suspects, which go first, those that
// were sent before and are to be sent again, and fresh items in order of
// sealing. It is not safe for concurrent use. Every method takes constant time,
// for again and suspects are short.
type queue struct {
	fresh    []*item // from head on
	head     int
	again    []*item // in no order; at most mostAgain and what was in flight
	suspects []*item // in no order; at most what was in flight at crashes
}

// mostAgain bounds the items that wait to be sent again: with so many of them
// the back end is in trouble, and fresh ones would only join them.
const mostAgain = 64

func (q *queue) empty() bool {
	return q.head == len(q.fresh) && len(q.again) == 0 && len(q.suspects) == 0
}

// push adds a fresh item behind the others.
func (q *queue) push(it *item) { q.fresh = append(q.fresh, it) }

// retry adds an item that was in flight.
func (q *queue) retry(it *item) {
	if it.suspect {
		q.suspects = append(q.suspects, it)
		return
	}
	q.again = append(q.again, it)
}

// first gives the item to send next, which stays where it is; nil if none is
// due.
func (q *queue) first(now time.Time) *item {
	if first := q.firstSuspect(); first != nil {
		return first
	}
	var first *item
	for _, it := range q.again {
		if !it.next.After(now) && (first == nil || it.before(first)) {
			first = it
		}
	}
	if first == nil && q.head < len(q.fresh) && len(q.again) < mostAgain {
		first = q.fresh[q.head]
	}
	return first
}

// probe gives the item to send next, which stays where it is, to a back end that
// takes none: the one that was tried least; nil if none is due.
func (q *queue) probe(now time.Time) *item {
	if first := q.firstSuspect(); first != nil {
		return first
	}
	if q.head < len(q.fresh) && len(q.again) < mostAgain {
		return q.fresh[q.head]
	}
	var least *item
	for _, it := range q.again {
		if !it.next.After(now) && (least == nil || it.attempt < least.attempt || it.attempt == least.attempt && it.before(least)) {
			least = it
		}
	}
	return least
}

// firstSuspect gives the suspect that has crashed the fewest processes alone, so
// that one batch that crashes them all keeps the others waiting for as short as
// can be; nil if there is none.
func (q *queue) firstSuspect() *item {
	var first *item
	for _, it := range q.suspects {
		if first == nil || it.alone < first.alone || it.alone == first.alone && it.before(first) {
			first = it
		}
	}
	return first
}

// oldest gives the item sealed first, which stays where it is; nil if there is
// none.
func (q *queue) oldest() *item {
	var oldest *item
	if q.head < len(q.fresh) {
		oldest = q.fresh[q.head]
	}
	for _, list := range [...][]*item{q.again, q.suspects} {
		for _, it := range list {
			if oldest == nil || it.before(oldest) {
				oldest = it
			}
		}
	}
	return oldest
}

// remove takes out an item that first or oldest gave.
func (q *queue) remove(it *item) {
	if takeOut(&q.again, it) || takeOut(&q.suspects, it) {
		return
	}
	q.fresh[q.head] = nil
	q.head++
	// Half of the room is free: moving the rest costs less than it saves.
	if q.head == len(q.fresh) || q.head > 1024 && q.head > len(q.fresh)/2 {
		n := copy(q.fresh, q.fresh[q.head:])
		clear(q.fresh[n:])
		q.fresh, q.head = q.fresh[:n], 0
	}
}

// takeOut removes an item from a list without an order, if it is in it.
func takeOut(list *[]*item, it *item) bool {
	i := slices.Index(*list, it)
	if i < 0 {
		return false
	}
	last := len(*list) - 1
	(*list)[i], (*list)[last] = (*list)[last], nil
	*list = (*list)[:last]
	return true
}

// wake is the next moment at which something becomes due or older than maxAge;
// zero if nothing waits.
func (q *queue) wake(now time.Time, maxAge time.Duration) time.Time {
	oldest := q.oldest()
	if oldest == nil {
		return time.Time{}
	}
	next := oldest.sealed.Add(maxAge)
	for _, it := range q.again {
		if it.next.After(now) && it.next.Before(next) {
			next = it.next
		}
	}
	return next
}
