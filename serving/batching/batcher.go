package batching

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/scope"
)

// ErrTooLarge is the error of a request if its input is larger than the maximum batch size,
// as measured by the function of [WithSizeFunc]. The error of the request wraps ErrTooLarge
// and names both sizes.
var ErrTooLarge = errors.New("item is larger than the maximum batch size")

// errGoexit is the error of a function that ended its goroutine by runtime.Goexit.
var errGoexit = errors.New("batched function called runtime.Goexit")

// Batcher gathers the inputs of single requests into batches for one function. Each
// replica has its own queue. The methods are safe for concurrent use.
type Batcher[In, Out any] struct {
	core[In, Out]
	f func(context.Context, []In) ([]Out, error)
}

// New returns a batcher for the function f. name identifies f in spans, logs and metrics. f
// gets the inputs of a batch in order of arrival, at least one, and owns the slice. It must
// return one output for each input, in the same order. If f returns another number of
// outputs or an error, or panics, every request of the batch fails. A panic becomes a
// [*tracing.PanicError].
//
// The context of f has the values of the first sampled request's context, such as the
// request id and the model's id, or of the first request if none is sampled. Its current
// span is the span of the batch, which is the parent of the spans and calls that f makes.
// The context has no deadline. It ends when no request waits for the result any more.
func New[In, Out any](name string, f func(context.Context, []In) ([]Out, error), opts ...Option) *Batcher[In, Out] {
	b := &Batcher[In, Out]{f: f}
	b.init(name, opts)
	b.execute = b.call
	return b
}

// Do passes the input in to the function as part of a batch, and blocks until the function
// has returned. It returns the function's output for in. ctx must be the context of a request
// in a replica, or derived from it. If ctx ends first, Do returns its cause at once. If the
// function has not been called by then, it does not get the input.
func (b *Batcher[In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	q, err := b.queueFor(ctx)
	if err != nil {
		return out, err
	}
	it := &item[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	if err := q.add(it); err != nil {
		return out, err
	}
	select {
	case <-it.done:
	case <-ctx.Done():
		if !q.abandon(it) {
			return out, context.Cause(ctx)
		}
		<-it.done
	}
	return it.out, it.err
}

// call runs the function for the items, and stores the outputs in the items.
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
		return fmt.Errorf("batched function %q returned %d results for %d requests: want one result per request, in the same order",
			b.name, len(outs), len(items))
	}
	for i, it := range items {
		it.out = outs[i] // the caller reads it only after settleLocked
	}
	return nil
}

// core is the common part of [Batcher] and [StreamBatcher].
type core[In, Out any] struct {
	name       string
	concurrent int            // largest number of batches that one replica runs at a time
	size       func([]In) int // from WithSizeFunc; nil means that each item counts 1
	buffer     int            // from WithBuffer
	patience   time.Duration  // from WithPatience
	optErr     error          // error of invalid options; nil if all are valid
	// execute runs the user's function for the items of a batch. It must not keep the slice
	// after it has returned.
	execute func(context.Context, []*item[In, Out]) error

	maxSize atomic.Int64 // from WithMaxBatchSize or SetMaxBatchSize
	wait    atomic.Int64 // the wait timeout, as a time.Duration
	warned  atomic.Int64 // number of requests that the last warning asked for; 0 before the first

	mu     sync.Mutex
	queues map[*queue[In, Out]]struct{} // the queues of replicas that have not stopped
}

// init sets the fields from the options, except execute.
func (c *core[In, Out]) init(name string, opts []Option) {
	s := newSettings(opts)
	c.name, c.concurrent, c.buffer, c.patience = name, s.concurrent, s.buffer, s.patience
	c.optErr = s.check(name)
	if s.size != nil {
		size, ok := s.size.(func([]In) int)
		if !ok {
			c.optErr = errors.Join(c.optErr, fmt.Errorf("batcher %q: size function is a %T: want a %T", name, s.size, size))
		}
		c.size = size
	}
	c.maxSize.Store(int64(s.maxSize))
	c.wait.Store(int64(s.wait))
	c.queues = map[*queue[In, Out]]struct{}{}
}

// SetMaxBatchSize changes the maximum size of a batch in all replicas, from the next
// batch on. See [WithMaxBatchSize]. If it returns an error, nothing has changed.
func (c *core[In, Out]) SetMaxBatchSize(n int) error {
	if err := checkMaxSize(n); err != nil {
		return fmt.Errorf("batcher %q: %w", c.name, err)
	}
	c.maxSize.Store(int64(n))
	c.wakeAll()
	return nil
}

// SetWaitTimeout changes how long the first request of a batch waits, in all replicas.
// It applies to requests that already wait, too. See [WithWaitTimeout]. If it returns
// an error, nothing has changed.
func (c *core[In, Out]) SetWaitTimeout(d time.Duration) error {
	if err := checkWait(d); err != nil {
		return fmt.Errorf("batcher %q: %w", c.name, err)
	}
	c.wait.Store(int64(d))
	c.wakeAll()
	return nil
}

// wakeAll makes all queues use the changed settings.
func (c *core[In, Out]) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.queues {
		q.wakeLeader()
		c.warn(q.replica)
	}
}

// queueFor returns the queue of the replica in which ctx runs.
func (c *core[In, Out]) queueFor(ctx context.Context) (*queue[In, Out], error) {
	if c.optErr != nil {
		return nil, c.optErr
	}
	call := scope.FromContext(ctx)
	if call == nil {
		return nil, fmt.Errorf("batcher %q: the context belongs to no replica: pass the context of a request, or one derived from it", c.name)
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

// warn logs a warning if the deployment's max_ongoing_requests is too low to fill the
// batches. It repeats the warning only if the settings of the batcher have changed.
func (c *core[In, Out]) warn(r *scope.Replica) {
	want := c.maxSize.Load() * int64(c.concurrent)
	if c.size != nil {
		return // the size does not count requests
	}
	if int64(r.MaxOngoing) >= want {
		want = 0 // no warning
	}
	if c.warned.Swap(want) == want || want == 0 {
		return
	}
	r.Log.Warn("batches cannot be filled: raise max_ongoing_requests or lower the size of batches",
		slog.String("batcher", c.name),
		slog.String("app", r.App),
		slog.String("deployment", r.Deployment),
		slog.Int("max_ongoing_requests", r.MaxOngoing),
		slog.Int64("max_batch_size", c.maxSize.Load()),
		slog.Int("max_concurrent_batches", c.concurrent))
}
