package pipeline

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host/internal/spool"
)

// model is a backlog as a list that is searched.
type model []*Item

func (m model) first(now time.Time, again int) *Item {
	var first *Item
	for _, it := range m {
		due := it.suspect || !it.next.After(now) && (it.Attempt > 0 || again < mostAgain)
		if due && (first == nil || slices.Compare(it.rank(), first.rank()) < 0) {
			first = it
		}
	}
	return first
}

// rank decides the order of items; the lowest rank is first: suspects by the number of
// their crashes alone, then items that were sent before, then the rest.
func (it *Item) rank() []int {
	order := int(it.seq)
	switch {
	case it.suspect:
		return []int{0, it.alone, order}
	case it.Attempt > 0:
		return []int{1, 0, order}
	}
	return []int{2, 0, order}
}

func (m model) oldest() *Item {
	if len(m) == 0 {
		return nil
	}
	return slices.MinFunc(m, func(a, b *Item) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
}

// TestQueueAgainstModel does random things to a queue and to its model.
func TestQueueAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(0, 0)
	var (
		q   backlog
		m   model
		seq uint64
	)
	remove := func(it *Item) {
		q.remove(it)
		m = slices.DeleteFunc(m, func(other *Item) bool { return other == it })
	}
	for step := range 5000 {
		switch n := rng.IntN(10); {
		case n < 5:
			seq++
			it := &Item{spans: 1, seq: seq, sealed: now}
			m = append(m, it)
			if rng.IntN(10) > 0 {
				q.push(it)
				break
			}
			it.Attempt, it.suspect, it.alone = 1, true, rng.IntN(mostAlone) // in flight at a crash, with others
			q.retry(it)
		case n < 8:
			it := q.first(now)
			if want := m.first(now, len(q.again)); it != want {
				t.Fatalf("step %d: first is %+v, want %+v", step, it, want)
			}
			if it == nil {
				break
			}
			remove(it)
			if rng.IntN(2) == 0 {
				it.Attempt++
				it.next = now.Add(time.Duration(rng.IntN(100)))
				it.suspect = rng.IntN(4) == 0
				q.retry(it)
				m = append(m, it)
			}
		case n < 9:
			it := q.oldest()
			if want := m.oldest(); it != want {
				t.Fatalf("step %d: oldest is %+v, want %+v", step, it, want)
			}
			if it != nil {
				remove(it)
			}
		default:
			now = now.Add(10)
		}
		if n := len(slices.Collect(q.all())); n != len(m) {
			t.Fatalf("step %d: %d items, want %d", step, n, len(m))
		}
		if len(q.again) > mostAgain {
			t.Fatalf("step %d: %d items wait to be sent again", step, len(q.again))
		}
	}
	if len(q.fresh) > 4*len(m)+4096 {
		t.Errorf("room for %d items, %d are there", len(q.fresh), len(m))
	}
}

func TestQueueWakes(t *testing.T) {
	now := time.Unix(1000, 0)
	var q backlog
	if got := q.wake(now, time.Minute, 0); !got.IsZero() {
		t.Errorf("an empty queue wakes at %v", got)
	}
	q.push(&Item{sealed: now.Add(-time.Second)})
	if got, want := q.wake(now, time.Minute, 0), now.Add(59*time.Second); !got.Equal(want) {
		t.Errorf("wakes at %v, want %v for its age", got, want)
	}
	q.retry(&Item{seq: 1, Attempt: 1, sealed: now, next: now.Add(time.Second)})
	q.retry(&Item{seq: 2, Attempt: 1, sealed: now, next: now.Add(-time.Second)})
	if got, want := q.wake(now, time.Minute, 0), now.Add(time.Second); !got.Equal(want) {
		t.Errorf("wakes at %v, want %v for what is due then", got, want)
	}
}

// TestProbeIsWhatWasTriedLeast: suspects come first, then fresh items, then the item with
// the fewest attempts.
func TestProbeIsWhatWasTriedLeast(t *testing.T) {
	now := time.Unix(1000, 0)
	var q backlog
	want := func(seq uint64) {
		t.Helper()
		it := q.probe(now)
		if it == nil || it.seq != seq {
			t.Fatalf("the probe is %+v, want batch %d", it, seq)
		}
		q.remove(it)
	}
	if it := q.probe(now); it != nil {
		t.Errorf("the probe of an empty queue is %+v", it)
	}
	q.retry(&Item{seq: 1, Attempt: 3})
	q.retry(&Item{seq: 2, Attempt: 1})
	q.retry(&Item{seq: 3, Attempt: 1})
	q.retry(&Item{seq: 4, Attempt: 0, next: now.Add(time.Second)}) // not due
	q.retry(&Item{seq: 5, suspect: true})
	q.push(&Item{seq: 6})
	for _, seq := range []uint64{5, 6, 2, 3, 1} {
		want(seq)
	}
	if it := q.probe(now); it != nil {
		t.Errorf("the probe is %+v, which is not due", it)
	}
}

// TestRemovedItemHidesNoUnloadableItem removes an item that has been unloaded from the
// middle of the list. The next item, which can be unloaded, must be found.
func TestRemovedItemHidesNoUnloadableItem(t *testing.T) {
	item := func(stored, inMemory bool) *Item {
		it := &Item{delivery: &delivery{origin: &origin{}}}
		if stored {
			it.delivery.origin.records = []*spool.Record{nil}
		}
		if inMemory {
			it.Batch = &batch{}
		}
		return it
	}
	notStored, unloaded, last := item(false, true), item(true, false), item(true, true)
	var q backlog
	for _, it := range []*Item{notStored, unloaded, last} {
		q.push(it)
	}
	if got := q.unloadable(); got != last {
		t.Fatalf("unloadable: item of %v, want the last", got)
	}
	if got := q.oldestStored(); got != unloaded {
		t.Fatalf("oldestStored: %v, want the item that was unloaded", got)
	}
	q.remove(unloaded)
	if got := q.unloadable(); got != last {
		t.Errorf("unloadable after remove: %v, want the last item", got)
	}
}
