package host

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a backlog as a list that is searched.
type model []*item

func (m model) first(now time.Time, again int) *item {
	var first *item
	for _, it := range m {
		due := it.suspect || !it.next.After(now) && (it.attempt > 0 || again < mostAgain)
		if due && (first == nil || slices.Compare(it.rank(), first.rank()) < 0) {
			first = it
		}
	}
	return first
}

// rank is what decides who goes first, the least number in the first place:
// suspects by their crashes alone, then what was sent before, then the rest.
func (it *item) rank() []int {
	order := int(it.seq)
	switch {
	case it.suspect:
		return []int{0, it.alone, order}
	case it.attempt > 0:
		return []int{1, 0, order}
	}
	return []int{2, 0, order}
}

func (m model) oldest() *item {
	if len(m) == 0 {
		return nil
	}
	return slices.MinFunc(m, func(a, b *item) int {
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
	remove := func(it *item) {
		q.remove(it)
		m = slices.DeleteFunc(m, func(other *item) bool { return other == it })
	}
	for step := range 5000 {
		switch n := rng.IntN(10); {
		case n < 5:
			seq++
			it := &item{b: &batch{spans: 1}, seq: seq, sealed: now}
			m = append(m, it)
			if rng.IntN(10) > 0 {
				q.push(it)
				break
			}
			it.attempt, it.suspect, it.alone = 1, true, rng.IntN(mostAlone) // in flight at a crash, with others
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
				it.attempt++
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
		if q.empty() != (len(m) == 0) {
			t.Fatalf("step %d: empty is %v with %d items", step, q.empty(), len(m))
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
	if got := q.wake(now, time.Minute); !got.IsZero() {
		t.Errorf("an empty queue wakes at %v", got)
	}
	q.push(&item{sealed: now.Add(-time.Second)})
	if got, want := q.wake(now, time.Minute), now.Add(59*time.Second); !got.Equal(want) {
		t.Errorf("wakes at %v, want %v for its age", got, want)
	}
	q.retry(&item{seq: 1, attempt: 1, sealed: now, next: now.Add(time.Second)})
	q.retry(&item{seq: 2, attempt: 1, sealed: now, next: now.Add(-time.Second)})
	if got, want := q.wake(now, time.Minute), now.Add(time.Second); !got.Equal(want) {
		t.Errorf("wakes at %v, want %v for what is due then", got, want)
	}
}
