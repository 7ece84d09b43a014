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

// queue holds the waiting requests of one replica and forms batches.
//
// It runs at most as many worker goroutines as batches may run. One worker is the
// leader: it waits until a batch is due, takes it, makes another worker the leader if
// requests remain, and runs the batch. Only the leader removes items for a batch. So it
// alone calls the size function, and does so without the lock.
type queue[In, Out any] struct {
	core    *core[In, Out]
	replica *scope.Replica
	metrics *metrics.Batcher
	// wake makes the leader check the queue again. A buffer of one is enough, because
	// the leader checks everything.
	wake chan struct{}

	// Used by the leader only.
	timer   *time.Timer
	scratch []In

	mu      sync.Mutex
	groups  map[string]*group[In, Out] // by model id, without ""; empty groups are removed
	noModel *group[In, Out]            // requests without a model id; most queues have only these
	waiting int                        // items in all groups
	workers int
	leading bool          // a worker is the leader
	idle    chan struct{} // set by stop, closed when the last worker has ended
}

// group is the list of items that wait for one model, in order of arrival.
type group[In, Out any] struct {
	model      string
	head, tail *item[In, Out]
	n          int

	// The fields below are used with a size function only. The first fits items have
	// this size together. full means that the next item does not fit. limit is the
	// maximum size that was used.
	fits, size int
	full       bool
	limit      int
}

// state is the stage of an item's life.
type state uint8

const (
	waiting   state = iota // in a group
	running                // in a batch
	answered               // its answer is ready
	abandoned              // its caller has returned, or is about to
)

// item is the input and the answer of one request.
type item[In, Out any] struct {
	ctx     context.Context
	in      In
	arrived time.Time
	request *Request[In, Out] // nil unless it is a stream
	// done receives one value when the answer is ready. Streams do not use it.
	done chan struct{}
	out  Out   // written before done receives
	err  error // written before done receives

	// The fields below are guarded by the queue's mu.
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
		noModel: &group[In, Out]{},
	}
}

// add appends an item to the group of its model.
func (q *queue[In, Out]) add(it *item[In, Out]) error {
	model := modelID(it.ctx)
	it.arrived = time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle != nil {
		return fmt.Errorf("batcher %q: the replica has stopped", q.core.name)
	}
	g := q.noModel
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

// abandon records that the caller of the item no longer waits, and reports whether the
// item has an answer nevertheless. If not, the caller must not use the item again.
func (q *queue[In, Out]) abandon(it *item[In, Out]) (hasAnswer bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch it.state {
	case waiting:
		q.removeLocked(it)
		it.state = abandoned
		if q.waiting == 0 {
			q.wakeLocked() // the leader returns
		}
	case running:
		it.state = abandoned
		it.batch.callerDoneLocked(true)
	case answered:
		return true
	case abandoned:
	}
	return false
}

// markAnswered records that an item has its answer before its batch has ended.
func (q *queue[In, Out]) markAnswered(it *item[In, Out]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.state == running {
		it.state = answered
		it.batch.callerDoneLocked(false)
	}
}

// wakeLeader makes the leader check the settings and the items again.
func (q *queue[In, Out]) wakeLeader() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked()
}

// stop makes add return an error from now on, and waits until the workers have ended or
// ctx ends.
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

// startLocked starts a worker as the leader, if a leader is needed and a worker is
// allowed. It reports whether it did.
func (q *queue[In, Out]) startLocked() bool {
	if q.waiting == 0 || q.leading || q.workers >= q.core.concurrent {
		return false
	}
	q.leading = true
	q.workers++
	go q.work()
	return true
}

// work leads and runs batches, in turn, until no requests wait or another worker leads.
func (q *queue[In, Out]) work() {
	leads := true
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if leads { // the size function called runtime.Goexit
			q.leading = false
		}
		q.workers--
		q.startLocked()
		if q.workers == 0 && q.idle != nil {
			close(q.idle)
		}
	}()
	for leads {
		b := q.lead()
		leads = false
		if b == nil {
			return
		}
		q.run(b)
		leads = q.tryLead()
	}
}

// tryLead makes this worker the leader again if one is needed, and reports whether it
// did.
func (q *queue[In, Out]) tryLead() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leading || q.waiting == 0 {
		return false
	}
	q.leading = true
	return true
}

// lead waits until a batch is due and returns it, or nil if no requests wait. The
// worker is not the leader any more when lead returns.
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
			q.waitForChange(due.Sub(now))
			q.mu.Lock()
		}
	}
	q.leading = false
	return nil
}

// waitForChange waits for the duration d or until wakeLocked is called.
func (q *queue[In, Out]) waitForChange(d time.Duration) {
	q.timer.Reset(d)
	defer q.timer.Stop()
	select {
	case <-q.timer.C:
	case <-q.wake:
	}
}

// readyLocked returns the group with a batch that is due. Of several groups, it returns
// the group with the earliest first item. If no group is due, it returns the time at
// which the next group will be.
func (q *queue[In, Out]) readyLocked(now time.Time) (ready *group[In, Out], due time.Time) {
	wait := time.Duration(q.core.wait.Load())
	limit := int(q.core.maxSize.Load())
	check := func(g *group[In, Out]) {
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
	check(q.noModel)
	for _, g := range q.groups {
		check(g)
	}
	return ready, due
}

// takeLocked forms a batch of the first items of the group. It returns nil if all of
// them have left, or if their size must be measured again.
func (q *queue[In, Out]) takeLocked(g *group[In, Out], now time.Time) *batch[In, Out] {
	limit := int(q.core.maxSize.Load())
	most := limit
	if q.core.size != nil {
		most = g.fits
		if q.pruneLocked(g, most) {
			return nil // the remaining items may leave room for more
		}
	}
	b := &batch[In, Out]{items: make([]*item[In, Out], 0, min(most, g.n)), limit: limit, size: g.size}
	for it := g.head; it != nil && len(b.items) < most; it = g.head {
		q.removeLocked(it)
		if q.core.size == nil && it.ctx.Err() != nil {
			it.state = abandoned // its caller is about to return
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

// pruneLocked removes items with an ended context from the first n items of the group,
// and reports whether it removed any.
func (q *queue[In, Out]) pruneLocked(g *group[In, Out], n int) (pruned bool) {
	it := g.head
	for range n {
		next := it.next
		if it.ctx.Err() != nil {
			q.removeLocked(it)
			it.state = abandoned // its caller is about to return
			pruned = true
		}
		it = next
	}
	return pruned
}

// removeLocked removes an item from its group.
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
	g.fits, g.size, g.full = 0, 0, false // measure the remaining items again
}

// measureLocked calls the size function to find how many items of each group fit into a
// batch. It unlocks mu while the function runs.
func (q *queue[In, Out]) measureLocked() {
	if q.core.size == nil {
		return
	}
	limit := int(q.core.maxSize.Load())
	for g := q.unmeasuredLocked(limit); g != nil; g = q.unmeasuredLocked(limit) {
		q.measureNextLocked(g)
	}
}

// unmeasuredLocked returns a group with an item that has not been measured, or nil.
func (q *queue[In, Out]) unmeasuredLocked(limit int) *group[In, Out] {
	unmeasured := func(g *group[In, Out]) bool {
		if g.limit != limit {
			g.limit, g.fits, g.size, g.full = limit, 0, 0, false
		}
		return !g.full && g.fits < g.n
	}
	if unmeasured(q.noModel) {
		return q.noModel
	}
	for _, g := range q.groups {
		if unmeasured(g) {
			return g
		}
	}
	return nil
}

// measureNextLocked finds out whether the next item of g fits into the batch.
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
	defer func() { // deferred, because the function may call runtime.Goexit
		clear(ins)
		q.mu.Lock()
		if next.state != waiting {
			return
		}
		switch {
		case err != nil:
			q.failLocked(next, err)
		case g.fits != fits:
			// An earlier item has left meanwhile.
			// An earlier item has left meanwhile.
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

// sizeOf calls the size function and returns a panic as an error.
func (q *queue[In, Out]) sizeOf(ctx context.Context, ins []In) (size int, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = q.panicked(ctx, "size function of a batch panicked", v, len(ins))
		}
	}()
	return q.core.size(ins), nil
}

// failLocked removes a waiting item from its group and answers it with an error.
func (q *queue[In, Out]) failLocked(it *item[In, Out], err error) {
	q.removeLocked(it)
	it.settleLocked(err)
}

// panicked logs a panic of user code and returns it as an error.
func (q *queue[In, Out]) panicked(ctx context.Context, msg string, v any, items int) error {
	return q.replica.Panicked(ctx, msg, v, slog.String("batcher", q.core.name), slog.Int("requests", items))
}
