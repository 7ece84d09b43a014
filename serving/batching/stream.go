package batching

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// ErrSlowConsumer is the error of a stream after its buffer was full for too long,
// because the consumer was slow. See [WithPatience].
var ErrSlowConsumer = errors.New("stream cut off: its consumer is too slow for the batch")

// StreamBatcher gathers requests into batches for one function that answers each
// request with a stream. Each replica has its own queue. The methods are safe for
// concurrent use.
type StreamBatcher[In, Out any] struct {
	core[In, Out]
	f func(context.Context, []*Request[In, Out]) error
}

// Request is one request of a batch of streams: its input and the stream to its consumer.
// The batched function must not use a Request after the function has returned.
type Request[In, Out any] struct {
	// In is the input.
	In In

	queue *queue[In, Out]
	item  *item[In, Out]
	outs  chan Out
	gone  chan struct{} // closed when the consumer has left

	patience time.Duration // time left to wait for the consumer; used by the sender only

	end   sync.Once
	ended chan struct{}
	err   error // written before ended is closed
}

// NewStream returns a batcher of streams. For the name, the options and the context of
// f see [New]. f gets the requests of a batch in order of arrival, at least one, and
// owns the slice. It sends outputs to each request at any pace: token by token to all,
// or one request after another. When f returns, all streams that are still open end,
// with its error or panic if there is one.
//
// In Ray Serve such a function yields a list per step, with an entry for each request,
// and a sentinel for a finished request. Here a finished request, or a request without a
// consumer, needs no entry.
func NewStream[In, Out any](name string, f func(ctx context.Context, batch []*Request[In, Out]) error, opts ...Option) *StreamBatcher[In, Out] {
	b := &StreamBatcher[In, Out]{f: f}
	b.init(name, opts)
	b.execute = b.call
	return b
}

// Stream passes in to the function as part of a batch. Each range over the sequence
// makes a new request when it begins. The sequence yields the outputs, and at the end
// an error if there was one. ctx must be the context of a request in a replica, or
// derived from it. If ctx ends first, its cause is the error. If the consumer breaks
// out of the range, or ctx ends, the batch continues for the other requests.
func (b *StreamBatcher[In, Out]) Stream(ctx context.Context, in In) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		if err := b.consume(ctx, in, yield); err != nil {
			var none Out
			yield(none, err)
		}
	}
}

// consume passes the outputs to yield. It returns nil after a break, too.
func (b *StreamBatcher[In, Out]) consume(ctx context.Context, in In, yield func(Out, error) bool) error {
	q, err := b.queueFor(ctx)
	if err != nil {
		return err
	}
	r := &Request[In, Out]{
		In:       in,
		queue:    q,
		outs:     make(chan Out, b.buffer),
		gone:     make(chan struct{}),
		ended:    make(chan struct{}),
		patience: b.patience,
	}
	r.item = &item[In, Out]{ctx: ctx, in: in, request: r}
	if err := q.add(r.item); err != nil {
		return err
	}
	defer q.abandon(r.item)
	defer close(r.gone)
	for {
		select {
		case out := <-r.outs:
			if !yield(out, nil) {
				return nil
			}
		case <-r.ended:
			return r.drain(yield)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drain passes the remaining buffered outputs to yield and returns the stream's error.
func (r *Request[In, Out]) drain(yield func(Out, error) bool) error {
	for {
		select {
		case out := <-r.outs:
			if !yield(out, nil) {
				return nil
			}
		default:
			return r.err
		}
	}
}

// Send sends the next output to the consumer. It returns false if the consumer has left
// or was cut off, or if the stream has ended: then further outputs are pointless. Send
// blocks only if the buffer of the consumer is full, and for a bounded time: see
// [WithPatience]. Calls for one request must not overlap. Calls for different requests
// may.
func (r *Request[In, Out]) Send(out Out) bool {
	select {
	case <-r.gone:
		return false
	case <-r.ended:
		return false
	default:
	}
	select {
	case r.outs <- out:
		return true
	default:
		return r.sendSlowly(out)
	}
}

// sendSlowly sends out when the buffer has a free place. It gives up when the time of
// [WithPatience] is used up.
func (r *Request[In, Out]) sendSlowly(out Out) bool {
	began := time.Now()
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case r.outs <- out:
		r.patience = max(0, r.patience-time.Since(began))
		return true
	case <-r.gone:
	case <-r.ended:
	case <-timer.C:
		r.End(ErrSlowConsumer)
	}
	return false
}

// End ends the stream, with err if it is not nil. The consumer still gets all outputs
// sent before. Use End for a request that finishes before the rest of its batch.
// Outputs sent after it are dropped. Only the first End counts.
func (r *Request[In, Out]) End(err error) {
	r.queue.markAnswered(r.item) // before finish, so that a consumer that then leaves does not count as gone
	r.finish(err)
}

func (r *Request[In, Out]) finish(err error) {
	r.end.Do(func() {
		r.err = err
		close(r.ended)
	})
}

func (b *StreamBatcher[In, Out]) call(ctx context.Context, items []*item[In, Out]) error {
	batch := make([]*Request[In, Out], len(items))
	for i, it := range items {
		batch[i] = it.request
	}
	return b.f(ctx, batch)
}
