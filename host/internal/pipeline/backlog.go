package pipeline

import (
	"iter"
	"slices"
	"time"
)

// backlog has the items of one queue that wait. An item is a batch, or a part of a
// batch. They are sent in this order: first suspects, which may have crashed the
// plugin, then items that were sent without success, then fresh items in the order in
// which they were sealed. It is not safe for concurrent use.
//
// Most methods take constant time, because again and suspects are short. The methods
// for items on disk, and push of a late item, may search all of fresh.
type backlog struct {
	fresh    []*Item // items that were never sent; those before index head are gone
	head     int
	cold     int     // index in fresh; no item before it is unloadable
	again    []*Item // items that were sent without success, in no order
	suspects []*Item // items that may have crashed the plugin, in no order
}

// mostAgain is the number of items in again from which no fresh item is sent. If so
// many items have failed, the back end does not work, and fresh items would fail too.
const mostAgain = 64

// push adds a fresh item and keeps the order of sealing. A processor may answer a later
// batch first, so the item may have to be put before others. It then gets the arrival
// time of the next item, so that the first item is always the item that has waited
// longest.
func (l *backlog) push(it *Item) {
	i := len(l.fresh)
	for i > l.head && it.before(l.fresh[i-1]) {
		i--
		it.arrived = l.fresh[i].arrived
	}
	l.fresh, l.cold = slices.Insert(l.fresh, i, it), min(l.cold, i)
}

// prepend adds items before all fresh items. They are older, because an earlier process
// has sealed them.
func (l *backlog) prepend(list []*Item) {
	l.fresh, l.head, l.cold = append(list, l.fresh[l.head:]...), 0, 0
}

// unloadable returns an item that has its bytes both in memory and on disk, or nil if
// there is none. It prefers items that were sent before, then the oldest fresh item.
// The item stays in the backlog.
func (l *backlog) unloadable() *Item {
	for _, list := range [...][]*Item{l.again, l.suspects} {
		for _, it := range list {
			if it.unloadable() {
				return it
			}
		}
	}
	for l.cold = max(l.cold, l.head); l.cold < len(l.fresh); l.cold++ {
		if it := l.fresh[l.cold]; it.unloadable() {
			return it
		}
	}
	return nil
}

// oldestStored returns the oldest item if it is on disk. Otherwise it returns any item
// that is on disk, or nil if there is none. The item stays in the backlog.
func (l *backlog) oldestStored() *Item {
	if oldest := l.oldest(); oldest == nil || oldest.stored() {
		return oldest
	}
	for it := range l.all() {
		if it.stored() {
			return it
		}
	}
	return nil
}

// allStored reports whether all items are on disk, in the spool.
func (l *backlog) allStored() bool {
	for it := range l.all() {
		if !it.stored() {
			return false
		}
	}
	return true
}

// all returns all items. Items that were sent before come first.
func (l *backlog) all() iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for _, list := range [...][]*Item{l.again, l.suspects, l.fresh[l.head:]} {
			for _, it := range list {
				if !yield(it) {
					return
				}
			}
		}
	}
}

// retry adds an item that was sent and must be sent again.
func (l *backlog) retry(it *Item) {
	if it.suspect {
		l.suspects = append(l.suspects, it)
		return
	}
	l.again = append(l.again, it)
}

// first returns the item to send next. It returns nil if no item is due, because all
// items wait for their next attempt. The item stays in the backlog.
func (l *backlog) first(now time.Time) *Item {
	if first := l.firstSuspect(); first != nil {
		return first
	}
	var first *Item
	for _, it := range l.again {
		if !it.next.After(now) && (first == nil || it.before(first)) {
			first = it
		}
	}
	if first == nil && l.head < len(l.fresh) && len(l.again) < mostAgain {
		first = l.fresh[l.head]
	}
	return first
}

// probe returns the item to send next while the back end is away: the item with the
// fewest attempts. It returns nil if no item is due. The item stays in the backlog.
func (l *backlog) probe(now time.Time) *Item {
	if first := l.firstSuspect(); first != nil {
		return first
	}
	if l.head < len(l.fresh) && len(l.again) < mostAgain {
		return l.fresh[l.head]
	}
	var least *Item
	for _, it := range l.again {
		if !it.next.After(now) && (least == nil || it.Attempt < least.Attempt || it.Attempt == least.Attempt && it.before(least)) {
			least = it
		}
	}
	return least
}

// firstSuspect returns the suspect to send next, or nil if there is none. It prefers
// suspects that were alone in few crashes. So a batch that crashes every process delays
// the other suspects least.
func (l *backlog) firstSuspect() *Item {
	var first *Item
	for _, it := range l.suspects {
		if first == nil || it.alone < first.alone || it.alone == first.alone && it.before(first) {
			first = it
		}
	}
	return first
}

// oldest returns the item that was sealed first, or nil if no item waits. The item
// stays in the backlog.
func (l *backlog) oldest() *Item {
	var oldest *Item
	if l.head < len(l.fresh) {
		oldest = l.fresh[l.head]
	}
	for _, list := range [...][]*Item{l.again, l.suspects} {
		for _, it := range list {
			if oldest == nil || it.before(oldest) {
				oldest = it
			}
		}
	}
	return oldest
}

// remove removes an item that another method has returned.
func (l *backlog) remove(it *Item) {
	if takeOut(&l.again, it) || takeOut(&l.suspects, it) {
		return
	}
	if it != l.fresh[l.head] { // oldestStored may return an item from the middle
		i := slices.Index(l.fresh, it)
		l.fresh = slices.Delete(l.fresh, i, i+1)
		if i < l.cold {
			l.cold--
		}
		return
	}
	l.fresh[l.head] = nil
	l.head++
	// If most of the slice is unused, copying the rest costs less than the memory.
	if l.head == len(l.fresh) || l.head > 1024 && l.head > len(l.fresh)/2 {
		n := copy(l.fresh, l.fresh[l.head:])
		clear(l.fresh[n:])
		l.fresh, l.head, l.cold = l.fresh[:n], 0, max(0, l.cold-l.head)
	}
}

// takeOut removes an item from an unordered list, and reports whether the list had it.
func takeOut(list *[]*Item, it *Item) bool {
	i := slices.Index(*list, it)
	if i < 0 {
		return false
	}
	last := len(*list) - 1
	(*list)[i], (*list)[last] = (*list)[last], nil
	*list = (*list)[:last]
	return true
}

// wake returns the next time at which an item becomes due, or at which the oldest item
// becomes too old. It returns the zero time if no item waits.
func (l *backlog) wake(now time.Time, maxAge, patience time.Duration) time.Time {
	oldest := l.oldest()
	if oldest == nil {
		return time.Time{}
	}
	next := oldest.tooOld(maxAge, patience)
	for _, it := range l.again {
		if it.next.After(now) && it.next.Before(next) {
			next = it.next
		}
	}
	return next
}
