package batching

import (
	"context"
	"fmt"
	"time"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// errNoCallers is the cause with which the context of a batch ends if no request of the
// batch waits any more.
var errNoCallers = fmt.Errorf("every request of the batch has ended: %w", context.Canceled)

// batch holds the items of one call of the function.
type batch[In, Out any] struct {
	items       []*item[In, Out]
	size, limit int           // size and maximum size, in requests or in the unit of the size function
	waited      time.Duration // time for which the first item has waited

	// The queue's mu guards the fields below.
	live   int                     // number of callers that still wait for their result
	left   bool                    // a caller has left without its result
	cancel context.CancelCauseFunc // ends the context of the batch; nil until the batch runs
}

// callerDoneLocked records that a caller no longer waits, because it has left or has its
// whole result. When no caller waits any more, it cancels the context of the batch, unless
// all callers have their whole results.
func (b *batch[In, Out]) callerDoneLocked(left bool) {
	b.live--
	b.left = b.left || left
	if b.live == 0 && b.left && b.cancel != nil {
		b.cancel(errNoCallers)
	}
}

// run calls the user's function for a batch. The work after the call is deferred, because
// the function may end its goroutine by runtime.Goexit.
func (q *queue[In, Out]) run(b *batch[In, Out]) {
	members := make([]context.Context, len(b.items))
	for i, it := range b.items {
		members[i] = it.ctx
	}
	ctx, span := q.replica.Tracing.StartBatch(members, q.core.name)
	// The context of the batch belongs to a call of its own. Models that the function uses are
	// held until this call ends, even if the requests have ended before.
	call := scope.NewCall(q.replica)
	ctx, cancel := context.WithCancelCause(scope.ContextWithCall(ctx, call))

	began := time.Now()
	err := errGoexit
	defer func() {
		call.End()
		span.EndWork(err)
		q.metrics.Done(metrics.Batch{
			Size: b.size, Limit: b.limit, Wait: b.waited, Run: time.Since(began), Span: span.Context(),
		})
		q.settle(b, err)
		cancel(nil)
	}()
	q.mu.Lock()
	b.cancel = cancel
	if b.live == 0 {
		cancel(errNoCallers)
	}
	q.mu.Unlock()
	err = q.invoke(ctx, b)
}

// invoke calls the user's function and returns its error. A panic becomes an error.
func (q *queue[In, Out]) invoke(ctx context.Context, b *batch[In, Out]) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = q.panicked(ctx, "batched function panicked", v, len(b.items))
		}
	}()
	return scope.Touch(q.core.execute(ctx, b.items))
}

// settle passes the result of a batch to each item, if its caller still waits.
func (q *queue[In, Out]) settle(b *batch[In, Out], err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range b.items {
		if it.state == running {
			it.settleLocked(err)
		}
	}
}

// settleLocked makes err the answer of the item, or the item's outputs if err is nil, and
// wakes its caller.
func (it *item[In, Out]) settleLocked(err error) {
	it.state = answered
	if it.request != nil {
		it.request.finish(err)
		return
	}
	it.err = err
	close(it.done)
}
