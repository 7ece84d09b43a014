package batching

import (
	"context"
	"fmt"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// errAllGone is why a batch's context ends: nobody waits for it any more.
var errAllGone = fmt.Errorf("every request of the batch has gone: %w", context.Canceled)

// batch is what one call of the function answers.
type batch[In, Out any] struct {
	items       []*item[In, Out]
	size, limit int // in the unit of the size function
	waited      time.Duration

	// The queue's mu guards these.
	live   int                     // callers that wait for more
	gone   bool                    // some have left, so that the context ends with live
	cancel context.CancelCauseFunc // nil until it runs
}

// lessLocked counts a caller that does not wait any more: it has gone, or has all
// that it gets. A function that has answered everybody is not disturbed.
func (b *batch[In, Out]) lessLocked(gone bool) {
	b.live--
	b.gone = b.gone || gone
	if b.live == 0 && b.gone && b.cancel != nil {
		b.cancel(errAllGone)
	}
}

// run has the function answer a batch. All is done in deferred calls, because
// the function may end its goroutine by runtime.Goexit.
func (q *queue[In, Out]) run(b *batch[In, Out]) {
	members := make([]context.Context, len(b.items))
	for i, it := range b.items {
		members[i] = it.ctx
	}
	ctx, span := q.replica.Tracing.StartBatch(members, spans.BatchStart{Name: q.core.name})
	// A call of its own: what is held for a call, such as a model, is held until
	// the batch is done, whoever of its requests leaves.
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
		cancel(errAllGone)
	}
	q.mu.Unlock()
	err = q.invoke(ctx, b)
}

// invoke calls the function, and makes its panic an error.
func (q *queue[In, Out]) invoke(ctx context.Context, b *batch[In, Out]) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = q.panicked(ctx, "batched function panicked", v, len(b.items))
		}
	}()
	return scope.Touch(q.core.execute(ctx, b.items))
}

// settle gives the answers to those who still wait.
func (q *queue[In, Out]) settle(b *batch[In, Out], err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range b.items {
		if it.state == running {
			it.settleLocked(err)
		}
	}
}

// settleLocked tells an item's caller that the answer is there. The item is the
// caller's from then on.
func (it *item[In, Out]) settleLocked(err error) {
	it.state = answered
	if it.request != nil {
		it.request.finish(err)
		return
	}
	it.err = err
	it.done <- struct{}{} // it has room: an item is settled once
}
