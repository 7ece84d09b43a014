package batching

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// queue holds what waits in one replica, and forms the batches.
//
// Its goroutines, the workers, are at most as many as batches may run. One of
// them leads: it waits until a batch is to run, takes it, has another lead if
// there is something left, and runs it. Only the leader takes items off for a
// batch, so that it alone calls the size function, without the lock.
type queue[In, Out any] struct {
	core    *core[In, Out]
	replica *scope.Replica
	metrics *metrics.Batcher
	// wake has the leader look again. It has room for one, which is enough: the
	// leader looks at everything.
	wake chan struct{}

	// Used by the leader only, one after the other.
	timer   *time.Timer
	scratch []In

	mu      sync.Mutex
	groups  map[string]*group[In, Out] // by model id; without "" if empty
	plain   *group[In, Out]            // of ""; most queues need no other
	waiting int                        // in all groups
	workers int
	leading bool          // one of the workers leads
	idle    chan struct{} // not nil: stopped; closed when the last worker has ended
}

// group is what waits for one model, first come first.
type group[In, Out any] struct {
	model      string
	head, tail *item[In, Out]
	n          int

	// With a size function: so many of the first fit together into a batch, are
	// of that size, and are all that do (full). limit is the maximum then.
	fits, size int
	full       bool
	limit      int
}

// state is where an item is.
type state uint8

const (
	waiting  state = iota // in a group
	running               // in a batch
	answered              // it has its answer
	left                  // its caller has gone, or will as it must
)

// item is one request's input and answer.
type item[In, Out any] struct {
	ctx     context.Context
	in      In
	arrived time.Time
	request *Request[In, Out] // that of a stream, or nil
	// done is given one token when the answer is there. Not for streams.
	done chan struct{}
	out  Out   // written before done
	err  error // written before done

	// The queue's mu guards these.
	state      state
	group      *group[In, Out]
	prev, next *item[In, Out]
	batch      *batch[In, Out]
}

func newQueue[In, Out any](c *core[In, Out], r *scope.Replica) *queue[In, Out] {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &queue[In, Out]{
		core:    c,
		replica: r,
		metrics: r.Metrics.Batcher(c.name),
		wake:    make(chan struct{}, 1),
		timer:   timer,
		groups:  map[string]*group[In, Out]{},
		plain:   &group[In, Out]{},
	}
}

// add puts an item at the end of its group.
func (q *queue[In, Out]) add(it *item[In, Out]) error {
	model := modelID(it.ctx)
	it.arrived = time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle != nil {
		return fmt.Errorf("batcher %q: its replica has stopped", q.core.name)
	}
	g := q.plain
	if model != "" {
		g = q.groups[model]
		if g == nil {
			g = &group[In, Out]{model: model}
			q.groups[model] = g
		}
	}
	g.push(it)
	it.state = waiting
	q.waiting++
	q.metrics.Queued(1)
	if !q.startLocked() && q.leading && (q.core.size != nil || int64(g.n) == q.core.maxSize.Load()) {
		q.wakeLocked()
	}
	return nil
}

// leave tells that the caller of the item goes, and reports whether there is an
// answer all the same. If not, the item is not to be used again.
func (q *queue[In, Out]) leave(it *item[In, Out]) (hasAnswer bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch it.state {
	case waiting:
		q.removeLocked(it)
		it.state = left
		if q.waiting == 0 {
			q.wakeLocked() // for the leader to end
		}
	case running:
		it.state = left
		it.batch.lessLocked(true)
	case answered:
		return true
	case left:
	}
	return false
}

// answered tells that an item of a batch has its answer before the others.
func (q *queue[In, Out]) answered(it *item[In, Out]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.state == running {
		it.state = answered
		it.batch.lessLocked(false)
	}
}

// retune has the leader look at the settings.
func (q *queue[In, Out]) retune() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked()
}

// stop refuses items from now on, and waits for the workers until ctx ends.
func (q *queue[In, Out]) stop(ctx context.Context) {
	q.mu.Lock()
	q.idle = make(chan struct{})
	if q.workers == 0 {
		close(q.idle)
	}
	q.mu.Unlock()
	select {
	case <-q.idle:
	case <-ctx.Done():
	}
}

func (q *queue[In, Out]) wakeLocked() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// startLocked starts a worker that leads, if one is needed and allowed.
func (q *queue[In, Out]) startLocked() bool {
	if q.waiting == 0 || q.leading || q.workers >= q.core.concurrent {
		return false
	}
	q.leading = true
	q.workers++
	go q.work()
	return true
}

// work leads and runs a batch, in turn, until there is nothing to lead.
func (q *queue[In, Out]) work() {
	leads, over := true, false
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if leads && !over { // a size function has ended the goroutine
			q.leading = false
		}
		q.workers--
		q.startLocked()
		if q.workers == 0 && q.idle != nil {
			close(q.idle)
		}
	}()
	for !over {
		b := q.lead()
		leads = false
		if b == nil {
			break
		}
		q.run(b)
		leads = q.takeLead()
		over = !leads
	}
	over = true
}

// takeLead has this worker lead again, if it is needed for that.
func (q *queue[In, Out]) takeLead() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leading || q.waiting == 0 {
		return false
	}
	q.leading = true
	return true
}

// lead waits until a batch is to run, and takes it. It leads no more when it
// returns. Nil: nothing waits.
func (q *queue[In, Out]) lead() *batch[In, Out] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.waiting > 0 {
		q.measureLocked()
		now := time.Now()
		g, due := q.readyLocked(now)
		switch {
		case g != nil:
			if b := q.takeLocked(g, now); b != nil {
				q.leading = false
				q.startLocked()
				return b
			}
		case q.waiting > 0:
			q.mu.Unlock()
			q.pause(due.Sub(now))
			q.mu.Lock()
		}
	}
	q.leading = false
	return nil
}

// pause waits until the time is over or something has changed.
func (q *queue[In, Out]) pause(d time.Duration) {
	q.timer.Reset(d)
	defer q.timer.Stop()
	select {
	case <-q.timer.C:
	case <-q.wake:
	}
}

// readyLocked gives the group that is to run now; of several the one whose first
// item came first. Without one it tells when there will be.
func (q *queue[In, Out]) readyLocked(now time.Time) (ready *group[In, Out], due time.Time) {
	wait := time.Duration(q.core.wait.Load())
	limit := int(q.core.maxSize.Load())
	look := func(g *group[In, Out]) {
		if g.n == 0 {
			return
		}
		full := g.full || q.core.size == nil && g.n >= limit
		end := g.head.arrived.Add(wait)
		switch {
		case full || !end.After(now):
			if ready == nil || g.head.arrived.Before(ready.head.arrived) {
				ready = g
			}
		case due.IsZero() || end.Before(due):
			due = end
		}
	}
	look(q.plain)
	for _, g := range q.groups {
		look(g)
	}
	return ready, due
}

// takeLocked makes a batch of the first items of the group. It is nil if none of
// them is there any more, or none has been measured yet.
func (q *queue[In, Out]) takeLocked(g *group[In, Out], now time.Time) *batch[In, Out] {
	limit := int(q.core.maxSize.Load())
	most := limit
	if q.core.size != nil {
		most = g.fits
		if q.pruneLocked(g, most) {
			return nil // what remains may have room for more
		}
	}
	b := &batch[In, Out]{items: make([]*item[In, Out], 0, min(most, g.n)), limit: limit, size: g.size}
	for it := g.head; it != nil && len(b.items) < most; it = g.head {
		q.removeLocked(it)
		if q.core.size == nil && it.ctx.Err() != nil {
			it.state = left // its caller is about to see it
			continue
		}
		it.state, it.batch = running, b
		b.items = append(b.items, it)
	}
	if len(b.items) == 0 {
		return nil
	}
	b.live = len(b.items)
	b.waited = now.Sub(b.items[0].arrived)
	if q.core.size == nil {
		b.size = len(b.items)
	}
	return b
}

// pruneLocked takes out those of the first n items of the group whose contexts
// have ended, and reports whether there were any.
func (q *queue[In, Out]) pruneLocked(g *group[In, Out], n int) (pruned bool) {
	it := g.head
	for range n {
		next := it.next
		if it.ctx.Err() != nil {
			q.removeLocked(it)
			it.state = left // its caller is about to see it
			pruned = true
		}
		it = next
	}
	return pruned
}

// removeLocked takes an item out of its group.
func (q *queue[In, Out]) removeLocked(it *item[In, Out]) {
	g := it.group
	g.remove(it)
	q.waiting--
	q.metrics.Queued(-1)
	if g.n == 0 && g.model != "" {
		delete(q.groups, g.model)
	}
}

func (g *group[In, Out]) push(it *item[In, Out]) {
	it.group, it.prev = g, g.tail
	if g.tail == nil {
		g.head = it
	} else {
		g.tail.next = it
	}
	g.tail = it
	g.n++
}

func (g *group[In, Out]) remove(it *item[In, Out]) {
	if it.prev == nil {
		g.head = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		g.tail = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next, it.group = nil, nil, nil
	g.n--
	g.fits, g.size, g.full = 0, 0, false // what is left is to be measured anew
}

// measureLocked has the size function say how many of each group fit into a
// batch. It unlocks while the function runs.
func (q *queue[In, Out]) measureLocked() {
	if q.core.size == nil {
		return
	}
	limit := int(q.core.maxSize.Load())
	for g := q.unmeasuredLocked(limit); g != nil; g = q.unmeasuredLocked(limit) {
		q.measureNextLocked(g)
	}
}

// unmeasuredLocked gives a group with an item of which it is not known whether
// it fits; nil if there is none.
func (q *queue[In, Out]) unmeasuredLocked(limit int) *group[In, Out] {
	open := func(g *group[In, Out]) bool {
		if g.limit != limit {
			g.limit, g.fits, g.size, g.full = limit, 0, 0, false
		}
		return !g.full && g.fits < g.n
	}
	if open(q.plain) {
		return q.plain
	}
	for _, g := range q.groups {
		if open(g) {
			return g
		}
	}
	return nil
}

// measureNextLocked finds out whether one more item of g fits.
func (q *queue[In, Out]) measureNextLocked(g *group[In, Out]) {
	ins := q.scratch[:0]
	next := g.head
	for range g.fits {
		ins = append(ins, next.in)
		next = next.next
	}
	ins = append(ins, next.in)
	q.scratch = ins
	fits, limit := g.fits, g.limit // only the leader changes the limit

	size, err := 0, errGoexit
	q.mu.Unlock()
	defer func() { // the function may end the goroutine
		clear(ins)
		q.mu.Lock()
		if next.state != waiting {
			return
		}
		switch {
		case err != nil:
			q.failLocked(next, err)
		case g.fits != fits:
			// One of those before it has left.
		case size <= limit:
			g.fits, g.size, g.full = fits+1, size, size >= limit
		case fits > 0:
			g.full = true
		default:
			q.failLocked(next, fmt.Errorf("batcher %q: size %d, at most %d: %w", q.core.name, size, limit, ErrTooLarge))
		}
	}()
	size, err = q.sizeOf(next.ctx, ins)
}

// sizeOf calls the size function, and makes its panic an error.
func (q *queue[In, Out]) sizeOf(ctx context.Context, ins []In) (size int, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = q.panicked(ctx, "size function of a batch panicked", v, len(ins))
		}
	}()
	return q.core.size(ins), nil
}

// failLocked answers an item that waits with an error.
func (q *queue[In, Out]) failLocked(it *item[In, Out], err error) {
	q.removeLocked(it)
	it.settleLocked(err)
}

// panicked logs a panic of user code, once, and gives it as an error.
func (q *queue[In, Out]) panicked(ctx context.Context, msg string, v any, items int) error {
	return q.replica.Panicked(ctx, msg, v, slog.String("batcher", q.core.name), slog.Int("requests", items))
}
