package batching

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// ErrSlowConsumer ends the stream of a consumer that was behind by a whole
// buffer for too long: see [WithPatience].
var ErrSlowConsumer = errors.New("stream cut off: its consumer is too slow for the batch")

// StreamBatcher gathers requests into batches for one function that answers each
// of them with a stream. Each replica has a queue of its own. Its methods are
// safe for concurrent use.
type StreamBatcher[In, Out any] struct {
	core[In, Out]
	f func(context.Context, []*Request[In, Out]) error
}

// Request is one request of a batch of streams: its input, and the way to its
// consumer. It is the batched function's until that returns.
type Request[In, Out any] struct {
	// In is the input.
	In In

	queue *queue[In, Out]
	item  *item[In, Out]
	outs  chan Out
	gone  chan struct{} // closed when the consumer has left

	patience time.Duration // what is left of it; the sender's

	end   sync.Once
	ended chan struct{}
	err   error // written before ended is closed
}

// NewStream builds a batcher of streams. Name, options and the context of f are
// as [New] says. f gets the requests of a batch in the order in which they came,
// at least one, and owns the slice. It sends each its outputs, at the pace that
// suits it: token by token to all, or one request after the other. Streams that
// it has not ended end when it returns: with its error or panic, or well.
//
// In Ray Serve such a function yields a list per step, with an entry per request
// and a sentinel where one has finished. Here a request that has finished, or
// whose consumer has left, needs no entry: drop it from the work.
func NewStream[In, Out any](name string, f func(ctx context.Context, batch []*Request[In, Out]) error, opts ...Option) *StreamBatcher[In, Out] {
	b := &StreamBatcher[In, Out]{f: f}
	b.init(name, opts)
	b.execute = b.call
	return b
}

// Stream has in answered with others. Each range over the sequence is a request,
// which begins with it. It gives the outputs, and at last an error if there was
// one. Its context must be that of a request in a replica, or derived from one;
// if it ends first, its cause is the error. A consumer that breaks, or whose
// context ends, has left: the batch goes on for the others.
func (b *StreamBatcher[In, Out]) Stream(ctx context.Context, in In) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		if err := b.consume(ctx, in, yield); err != nil {
			var none Out
			yield(none, err)
		}
	}
}

// consume gives the outputs to yield. It returns nil also after a break.
func (b *StreamBatcher[In, Out]) consume(ctx context.Context, in In, yield func(Out, error) bool) error {
	q, err := b.enter(ctx)
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
	defer q.leave(r.item)
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

// drain gives yield what was sent before the end.
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

// Send gives the consumer its next output, and reports whether it is worth going
// on: false means that the consumer has left, or was cut off, or that the stream
// has ended. It waits only where the consumer is behind by a whole buffer, and
// not for long: see [WithPatience]. Outputs of one request are to be sent by one
// goroutine at a time; those of different requests need not.
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

// sendSlowly waits for room, as long as there is patience left.
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

// End ends the stream: with an error, or well if that is nil. The consumer gets
// what was sent before. It is for a request that has finished before the others
// of its batch; what is sent after it goes nowhere. Only the first End counts.
func (r *Request[In, Out]) End(err error) {
	r.queue.answered(r.item) // before the consumer knows, and seems to have left
	r.finish(err)
}

// finish ends the stream for the consumer.
func (r *Request[In, Out]) finish(err error) {
	r.end.Do(func() {
		r.err = err
		close(r.ended)
	})
}

// call runs the function for the items.
func (b *StreamBatcher[In, Out]) call(ctx context.Context, items []*item[In, Out]) error {
	batch := make([]*Request[In, Out], len(items))
	for i, it := range items {
		batch[i] = it.request
	}
	return b.f(ctx, batch)
}
