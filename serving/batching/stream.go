package batching

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// ErrSlowConsumer is the error of a stream that was ended because its consumer was slow: its
// buffer was full for longer than the time of [WithPatience].
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
	outs  chan Out      // buffers outputs for the consumer
	gone  chan struct{} // closed when the consumer has left

	patience time.Duration // remaining time to wait for the consumer; only Send uses it

	end   sync.Once     // closes ended
	ended chan struct{} // closed when the stream has ended
	err   error         // error of the stream; written before ended is closed
}

// NewStream returns a batcher for the function f, which answers with streams. The name, the
// options and the context of f are as for [New]. f gets the requests of a batch in order of
// arrival, at least one, and owns the slice. It sends outputs to the requests in any order:
// token by token to all of them, or one request after another. When f returns, all streams
// end that have not ended yet. If f returns an error or panics, they end with this error.
//
// In Ray Serve, such a function yields a list in each step, with an entry for each request of
// the batch. The entry of a finished request is a sentinel. Here, f does nothing for a
// finished request.
func NewStream[In, Out any](name string, f func(ctx context.Context, batch []*Request[In, Out]) error, opts ...Option) *StreamBatcher[In, Out] {
	b := &StreamBatcher[In, Out]{f: f}
	b.init(name, opts)
	b.execute = b.call
	return b
}

// Stream passes the input in to the function as part of a batch. Each range over the
// returned sequence makes a new request. The sequence yields the outputs. If the stream
// fails, the last step yields the error. ctx must be the context of a request in a replica,
// or derived from it. If ctx ends first, its cause is the error. If the consumer leaves the
// loop, or ctx ends, the batch continues for the other requests.
func (b *StreamBatcher[In, Out]) Stream(ctx context.Context, in In) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		if err := b.consume(ctx, in, yield); err != nil {
			var none Out
			yield(none, err)
		}
	}
}

// consume makes a request and passes its outputs to yield. It returns the error of the
// stream. It returns nil if the stream has no error, or if yield returns false.
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

// drain passes the outputs that are left in the buffer to yield. It returns the error of the
// stream, which has ended, or nil if yield returns false.
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

// Send sends the next output to the consumer. It returns false if the consumer gets no more
// outputs, because it has left or was too slow, or because the stream has ended. Send blocks
// only if the buffer for the consumer is full, at most for the time of [WithPatience]. Calls
// of Send for one request must not overlap. Calls for different requests may overlap.
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

// sendSlowly waits until the buffer has a free place, and then sends out. If the time of
// [WithPatience] is used up first, it ends the stream and returns false.
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

// End ends the stream of this request before the other requests of its batch end. If err is
// not nil, the stream ends with this error. The consumer still gets the outputs that were
// sent before. Later outputs are dropped, and later calls of End do nothing.
func (r *Request[In, Out]) End(err error) {
	r.queue.markAnswered(r.item) // before finish, because the consumer may leave as soon as the stream has ended
	r.finish(err)
}

// finish ends the stream with err, or without an error if err is nil. Later calls do
// nothing.
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
