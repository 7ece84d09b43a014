package batching

import (
	"context"
	"fmt"
	"time"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// errNoCallers is the cause of a batch's context when no request waits any more.
var errNoCallers = fmt.Errorf("every request of the batch has ended: %w", context.Canceled)

// batch holds the items of one call of the function.
type batch[In, Out any] struct {
	items       []*item[In, Out]
	size, limit int // in the unit that the size function counts
	waited      time.Duration

	// The queue's mu guards the fields below.
	live   int                     // number of callers that wait for a result
	left   bool                    // a caller has left, so the context is cancelled when live is 0
	cancel context.CancelCauseFunc // nil until the batch runs
}

// callerDoneLocked records that a caller no longer waits, because it left or has its
// whole result. After the last caller, the context is cancelled, unless all callers have
// their results.
func (b *batch[In, Out]) callerDoneLocked(left bool) {
	b.live--
	b.left = b.left || left
	if b.live == 0 && b.left && b.cancel != nil {
		b.cancel(errNoCallers)
	}
}

// run calls the function for a batch. The result is handled in deferred calls, because
// the function may end its goroutine by runtime.Goexit.
func (q *queue[In, Out]) run(b *batch[In, Out]) {
	members := make([]context.Context, len(b.items))
	for i, it := range b.items {
		members[i] = it.ctx
	}
	ctx, span := q.replica.Tracing.StartBatch(members, q.core.name)
	// The batch has a call of its own. Resources such as models are held for this call until
	// the batch ends, even if the requests end earlier.
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

// invoke calls the function and returns a panic as an error.
func (q *queue[In, Out]) invoke(ctx context.Context, b *batch[In, Out]) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = q.panicked(ctx, "batched function panicked", v, len(b.items))
		}
	}()
	return scope.Touch(q.core.execute(ctx, b.items))
}

// settle answers each item if its caller still waits.
func (q *queue[In, Out]) settle(b *batch[In, Out], err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range b.items {
		if it.state == running {
			it.settleLocked(err)
		}
	}
}

// settleLocked passes the answer to the item's caller.
func (it *item[In, Out]) settleLocked(err error) {
	it.state = answered
	if it.request != nil {
		it.request.finish(err)
		return
	}
	it.err = err
	close(it.done)
}
