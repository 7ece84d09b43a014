package batching

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// ErrTooLarge is, wrapped with the numbers, the error of an item that is larger
// than a batch may be, by the function of [WithSizeFunc].
var ErrTooLarge = errors.New("item is larger than a batch may be")

// errGoexit stands for a function that ended its goroutine by runtime.Goexit.
var errGoexit = errors.New("batched function called runtime.Goexit")

// Batcher gathers the inputs of single requests into batches for one function.
// Each replica has a queue of its own. Its methods are safe for concurrent use.
type Batcher[In, Out any] struct {
	core[In, Out]
	f     func(context.Context, []In) ([]Out, error)
	items sync.Pool // of *item[In, Out] that nobody else holds
}

// New builds a batcher. The name, a word for the function, stands in spans, logs
// and metrics. f gets the inputs in the order in which they came, at least one,
// and owns the slice; it gives as many outputs, in the same order. If it gives
// another number, an error or a panic, each request of the batch fails with
// that, a panic as a [*tracing.PanicError].
//
// The context of f carries values of one of the requests (the first that is
// sampled, or the first): its identity, the model's id, and the batch's span, so
// that calls and spans that f makes belong to the batch. It has no deadline, and
// ends when no request waits for the result any more.
func New[In, Out any](name string, f func(context.Context, []In) ([]Out, error), opts ...Option) *Batcher[In, Out] {
	b := &Batcher[In, Out]{f: f}
	b.init(name, opts)
	b.execute = b.call
	b.items.New = func() any { return &item[In, Out]{done: make(chan struct{}, 1)} }
	return b
}

// Do has in answered with others, and waits for that. Its context must be that
// of a request in a replica, or derived from one. If it ends first, Do returns
// its cause at once, and f does not get in if it has not begun with it.
func (b *Batcher[In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	q, err := b.enter(ctx)
	if err != nil {
		return out, err
	}
	it := b.items.Get().(*item[In, Out])
	it.ctx, it.in = ctx, in
	if err := q.add(it); err != nil {
		return out, err
	}
	select {
	case <-it.done:
	case <-ctx.Done():
		if !q.leave(it) {
			// Not back to the pool: the batch may still hold it.
			return out, context.Cause(ctx)
		}
		<-it.done
	}
	out, err = it.out, it.err
	done := it.done
	*it = item[In, Out]{done: done}
	b.items.Put(it)
	return out, err
}

// call runs the function for the items.
func (b *Batcher[In, Out]) call(ctx context.Context, items []*item[In, Out]) error {
	ins := make([]In, len(items))
	for i, it := range items {
		ins[i] = it.in
	}
	outs, err := b.f(ctx, ins)
	if err != nil {
		return err
	}
	if len(outs) != len(items) {
		return fmt.Errorf("batched function %q gave %d results for %d requests: want one for each, in their order",
			b.name, len(outs), len(items))
	}
	for i, it := range items {
		it.out = outs[i] // nobody reads it before the item is settled
	}
	return nil
}

// core is what both kinds of batchers have in common.
type core[In, Out any] struct {
	name       string
	concurrent int
	size       func([]In) int // nil: each item is 1
	buffer     int
	patience   time.Duration
	fault      error // of the options
	// execute has the function answer the items, which it owns until it returns.
	execute func(context.Context, []*item[In, Out]) error

	maxSize atomic.Int64
	wait    atomic.Int64 // a time.Duration
	warned  atomic.Int64 // how many requests were last warned to be needed; 0: none

	mu     sync.Mutex
	queues map[*queue[In, Out]]struct{} // of the replicas that have not stopped
}

func (c *core[In, Out]) init(name string, opts []Option) {
	s := newSettings(opts)
	c.name, c.concurrent, c.buffer, c.patience = name, s.concurrent, s.buffer, s.patience
	c.fault = s.check(name)
	if s.size != nil {
		size, ok := s.size.(func([]In) int)
		if !ok {
			c.fault = errors.Join(c.fault, fmt.Errorf("batcher %q: size function is a %T: want a %T", name, s.size, size))
		}
		c.size = size
	}
	c.maxSize.Store(int64(s.maxSize))
	c.wait.Store(int64(s.wait))
	c.queues = map[*queue[In, Out]]struct{}{}
}

// SetMaxBatchSize changes how large a batch may be, as [WithMaxBatchSize] says,
// in all replicas, from the next batch on. On an error nothing is changed.
func (c *core[In, Out]) SetMaxBatchSize(n int) error {
	if err := checkMaxSize(n); err != nil {
		return fmt.Errorf("batcher %q: %w", c.name, err)
	}
	c.maxSize.Store(int64(n))
	c.wakeAll()
	return nil
}

// SetWaitTimeout changes how long the first request of a batch waits, as
// [WithWaitTimeout] says, in all replicas, also for those that wait already. On
// an error nothing is changed.
func (c *core[In, Out]) SetWaitTimeout(d time.Duration) error {
	if err := checkWait(d); err != nil {
		return fmt.Errorf("batcher %q: %w", c.name, err)
	}
	c.wait.Store(int64(d))
	c.wakeAll()
	return nil
}

// wakeAll has every queue look at the settings again.
func (c *core[In, Out]) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.queues {
		q.retune()
		c.warn(q.replica)
	}
}

// enter gives the queue of the replica that ctx belongs to.
func (c *core[In, Out]) enter(ctx context.Context) (*queue[In, Out], error) {
	if c.fault != nil {
		return nil, c.fault
	}
	call := scope.FromContext(ctx)
	if call == nil {
		return nil, fmt.Errorf("batcher %q: not in a replica: give it the context of a request, or one derived from it", c.name)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r := call.Replica
	return r.Value(c, func() any { return c.newQueue(r) }).(*queue[In, Out]), nil
}

func (c *core[In, Out]) newQueue(r *scope.Replica) *queue[In, Out] {
	q := newQueue(c, r)
	c.mu.Lock()
	c.queues[q] = struct{}{}
	c.mu.Unlock()
	c.warn(r)
	r.OnStop(func(ctx context.Context) {
		c.mu.Lock()
		delete(c.queues, q)
		c.mu.Unlock()
		q.stop(ctx)
	})
	return q
}

// warn tells where a deployment never has as many requests as the batches hold:
// once, and again when that has changed.
func (c *core[In, Out]) warn(r *scope.Replica) {
	want := c.maxSize.Load() * int64(c.concurrent)
	if c.size != nil {
		return // requests are not what is counted
	}
	if int64(r.MaxOngoing) >= want {
		want = 0 // well
	}
	if c.warned.Swap(want) == want || want == 0 {
		return
	}
	r.Log.Warn("batches can not be filled: raise max_ongoing_requests or lower the size of batches",
		slog.String("batcher", c.name),
		slog.String("app", r.App),
		slog.String("deployment", r.Deployment),
		slog.Int("max_ongoing_requests", r.MaxOngoing),
		slog.Int64("max_batch_size", c.maxSize.Load()),
		slog.Int("max_concurrent_batches", c.concurrent))
}

// modelID is the multiplexed model's of the request; empty for none.
func modelID(ctx context.Context) string {
	if r := identity.RequestFromContext(ctx); r != nil {
		return r.ModelID
	}
	return ""
}
