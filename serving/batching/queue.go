package batching

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// queue holds the waiting requests of one replica, and forms and runs batches.
//
// It has a worker goroutine for each batch that it runs, at most the permitted number. One
// worker is the leader. The leader waits until a batch is due and takes it from the queue. If
// requests remain, it makes another worker the leader. Then it runs the batch. Only the
// leader forms batches, so it alone calls the size function, without the lock.
type queue[In, Out any] struct {
	core    *core[In, Out]
	replica *scope.Replica
	metrics *metrics.Batcher
	// wake makes the leader check the queue again. It has a buffer of one value, because the
	// leader then checks the whole queue.
	wake chan struct{}

	// Only the leader uses these two fields.
	timer   *time.Timer // fires when a batch is due
	scratch []In        // the slice that the size function gets, for reuse

	mu      sync.Mutex
	waiting waitlist[In, Out]
	workers int           // number of worker goroutines
	leading bool          // a worker is the leader
	idle    chan struct{} // nil before stop; closed when the last worker has ended
}

func newQueue[In, Out any](c *core[In, Out], r *scope.Replica) *queue[In, Out] {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	counts := r.Metrics.Batcher(c.name)
	return &queue[In, Out]{
		core:    c,
		replica: r,
		metrics: counts,
		wake:    make(chan struct{}, 1),
		timer:   timer,
		waiting: waitlist[In, Out]{metrics: counts, sized: c.size != nil, byModel: map[string]*group[In, Out]{}},
	}
}

// add puts an item into the queue. It starts or wakes a worker if a batch may be due.
func (q *queue[In, Out]) add(it *item[In, Out]) error {
	model := identity.ModelID(it.ctx)
	it.arrived = time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle != nil {
		return fmt.Errorf("batcher %q: the replica has stopped", q.core.name)
	}
	g := q.waiting.add(it, model)
	if !q.startLocked() && q.leading && (q.core.size != nil || int64(g.items.Len()) == q.core.maxSize.Load()) {
		q.wakeLocked()
	}
	return nil
}

// abandon records that the caller of the item no longer waits for the answer. It returns
// true if the item has its answer already.
func (q *queue[In, Out]) abandon(it *item[In, Out]) (hasAnswer bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch it.state {
	case waiting:
		q.waiting.remove(it)
		it.state = abandoned
		if q.waiting.n == 0 {
			q.wakeLocked() // so that the leader ends
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

// markAnswered records that an item has its whole answer, although its batch still runs.
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

// wakeLocked makes the leader, if there is one, check the queue again.
func (q *queue[In, Out]) wakeLocked() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// startLocked starts a worker as the leader, if items wait, there is no leader, and another
// worker is permitted. It reports whether it has started a worker.
func (q *queue[In, Out]) startLocked() bool {
	if q.waiting.n == 0 || q.leading || q.workers >= q.core.concurrent {
		return false
	}
	q.leading = true
	q.workers++
	go q.work()
	return true
}

// work is the goroutine of a worker, which begins as the leader. It takes a batch, runs it,
// and repeats this until no requests wait or another worker is the leader.
func (q *queue[In, Out]) work() {
	leads := true
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if leads { // true only if the size function has called runtime.Goexit
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

// tryLead makes the calling worker the leader, if items wait and there is no leader. It
// reports whether the worker is the leader now.
func (q *queue[In, Out]) tryLead() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leading || q.waiting.n == 0 {
		return false
	}
	q.leading = true
	return true
}

// lead waits until a batch is due and returns it. It returns nil if no requests wait any
// more. When lead returns, the calling worker is no longer the leader.
func (q *queue[In, Out]) lead() *batch[In, Out] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.waiting.n > 0 {
		q.measureLocked()
		now, limit := time.Now(), int(q.core.maxSize.Load())
		g, due := q.waiting.ready(now, time.Duration(q.core.wait.Load()), limit)
		switch {
		case g != nil:
			if b := q.waiting.take(g, now, limit); b != nil {
				q.leading = false
				q.startLocked()
				return b
			}
		case q.waiting.n > 0:
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

// measureLocked calls the size function to find the number of items of each group that fit
// into a batch. It unlocks mu while the size function runs.
func (q *queue[In, Out]) measureLocked() {
	if q.core.size == nil {
		return
	}
	limit := int(q.core.maxSize.Load())
	for g := q.waiting.unmeasured(limit); g != nil; g = q.waiting.unmeasured(limit) {
		q.measureNextLocked(g)
	}
}

// measureNextLocked measures the first items of g up to the first item that is not measured
// yet, and records whether that item fits into the batch.
func (q *queue[In, Out]) measureNextLocked(g *group[In, Out]) {
	var next *item[In, Out]
	ins := q.scratch[:0]
	for at := g.items.Front(); len(ins) <= g.fits; at = at.Next() {
		next = at.Value.(*item[In, Out])
		ins = append(ins, next.in)
	}
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
			// An earlier item has left the group meanwhile, so the size is wrong.
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

// sizeOf returns the result of the size function for ins. It returns a panic as an error.
// ctx is the context for the log line of the panic.
func (q *queue[In, Out]) sizeOf(ctx context.Context, ins []In) (size int, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = q.panicked(ctx, "size function of a batch panicked", v, len(ins))
		}
	}()
	return q.core.size(ins), nil
}

// failLocked removes a waiting item from its group, and makes err the answer of its caller.
func (q *queue[In, Out]) failLocked(it *item[In, Out], err error) {
	q.waiting.remove(it)
	it.settleLocked(err)
}

// panicked logs the panic v of user code that ran for the given number of items. It returns
// the panic as an error.
func (q *queue[In, Out]) panicked(ctx context.Context, msg string, v any, items int) error {
	return q.replica.Panicked(ctx, msg, v, slog.String("batcher", q.core.name), slog.Int("requests", items))
}
