package serving

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/servetrace/servetrace/tracing"
)

// rpcArrival is a call as the context of its stream, from which all the others
// are derived.
type rpcArrival rpc

var _ context.Context = (*rpcArrival)(nil)

type rpcArrivalKey struct{}

// arrivedIn gives the call whose stream has the context ctx.
func arrivedIn(ctx context.Context) *rpc {
	a, _ := ctx.Value(rpcArrivalKey{}).(*rpcArrival)
	return (*rpc)(a)
}

// Deadline implements [context.Context].
func (a *rpcArrival) Deadline() (time.Time, bool) { return a.under.Deadline() }

// Done implements [context.Context].
func (a *rpcArrival) Done() <-chan struct{} { return a.under.Done() }

// Err implements [context.Context].
func (a *rpcArrival) Err() error { return a.under.Err() }

// Value implements [context.Context].
func (a *rpcArrival) Value(key any) any {
	if key == (rpcArrivalKey{}) {
		return a
	}
	return a.under.Value(key)
}

// rpcContext is a call as the context that its handler's is made of. It is that
// of grpc's stream, which ends without a cause, but that it tells the client's
// deadline from its departure. What ends it is made when somebody asks for it:
// most calls are over before anybody does.
type rpcContext rpc

var _ context.Context = (*rpcContext)(nil)

// cancelKey is what package context asks a context for to find the one that ends
// it. It does not tell, so it is watched as it looks there.
var cancelKey = func() (key any) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = context.Cause(keyhole{ended, &key})
	return key
}()

type keyhole struct {
	context.Context

	seen *any
}

// Value implements [context.Context].
func (k keyhole) Value(key any) any {
	*k.seen = key
	return nil
}

// String implements [fmt.Stringer], so that to print it reads nothing that changes.
func (c *rpcContext) String() string { return "gRPC call " + c.full }

// Deadline implements [context.Context].
func (c *rpcContext) Deadline() (time.Time, bool) { return c.deadline, c.limited }

// Done implements [context.Context]. The proxy sees the end of the stream itself
// while a handler runs. Whoever waits besides has it heeded for him, which most
// calls are too short to be worth.
func (c *rpcContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unheed == nil {
		c.unheed = context.AfterFunc(c.stream.Context(), (*rpc)(c).streamEnded)
	}
	return (*rpc)(c).endingLocked().Done()
}

// Err implements [context.Context].
func (c *rpcContext) Err() error {
	c.mu.Lock()
	ending, gone := c.ending, c.gone
	c.mu.Unlock()
	if ending == nil {
		if gone {
			return context.Canceled
		}
		return nil
	}
	err := ending.Err()
	if err != nil && errors.Is(context.Cause(ending), ErrClientDeadline) {
		return context.DeadlineExceeded
	}
	return err
}

// Value implements [context.Context].
func (c *rpcContext) Value(key any) any {
	if _, is := key.(tracing.RequestKey); is {
		return &c.request
	}
	if key == cancelKey {
		c.mu.Lock()
		defer c.mu.Unlock()
		return (*rpc)(c).endingLocked().Value(key)
	}
	return c.stream.Context().Value(key)
}

// endingLocked is what ends the call's context.
func (c *rpc) endingLocked() context.Context {
	if c.ending == nil {
		c.ending, c.finish = context.WithCancelCause(context.WithoutCancel(c.stream.Context()))
		if c.gone {
			c.finish(nil)
		}
	}
	return c.ending
}

// cut ends the call's context with cause, unless it has ended.
func (c *rpc) cut(cause error) {
	c.mu.Lock()
	_ = c.endingLocked()
	c.mu.Unlock()
	c.finish(cause)
}

// begin makes the call's context of the stream's, with our own limit where it is
// sooner than the client's. The caller calls release when the call is over.
func (c *rpc) begin(timeout time.Duration) context.Context {
	c.deadline, c.limited = c.stream.Context().Deadline()
	if timeout > 0 {
		if at := time.Now().Add(timeout); !c.limited || at.Before(c.deadline) {
			c.ending, c.cancel = context.WithDeadlineCause(c.endingLocked(), at, ErrRequestTimeout)
			c.timeout = c.ending.Done()
			c.deadline, c.limited = at, true
		}
	}
	return (*rpcContext)(c)
}

// release ends the call's context, unless it has ended.
func (c *rpc) release() {
	c.mu.Lock()
	c.gone = true
	if c.unheed == nil {
		c.unheed = func() bool { return false } // it is not worth it any more
	}
	unheed, finish := c.unheed, c.finish
	c.mu.Unlock()
	unheed()
	if c.cancel != nil {
		c.cancel()
	}
	if finish != nil {
		finish(nil)
	}
}

// await waits until the handler has returned, which gives its error, or until
// the call is to be ended, which gives the cause.
func (c *rpc) await() (returned bool, err error) {
	select {
	case o := <-c.done:
		switch o.stall {
		case noStall:
			return true, o.err
		case cutShort:
			return false, context.Cause((*rpcContext)(c))
		}
		return false, ErrClientStalled
	case <-c.stream.Context().Done():
		c.streamEnded()
		return false, context.Cause((*rpcContext)(c))
	case <-c.timeout:
		return false, context.Cause((*rpcContext)(c))
	case <-c.place.cut():
		return false, ErrReplicaStopped
	}
}

// streamEnded ends the call's context as the stream's has ended. A message that
// does not pass has grpc end the stream before we learn of it: what is under way
// has to return first, which it does now.
func (c *rpc) streamEnded() {
	c.ops.Lock()
	defer c.ops.Unlock()
	c.mu.Lock()
	told := c.told
	c.mu.Unlock()
	switch {
	case told != nil:
		c.cut(told)
	case c.isClientDeadline():
		c.cut(ErrClientDeadline)
	default:
		c.cut(ErrClientGone)
	}
}

// isClientDeadline tells a client whose deadline has come from one that does not
// want the answer any more, once either has ended the stream. The client's clock
// began before ours, so that as a rule its reset is here before our timer: one
// that cancels when its deadline is all but over counts as the former.
func (c *rpc) isClientDeadline() bool {
	stream := c.stream.Context()
	if errors.Is(stream.Err(), context.DeadlineExceeded) {
		return true
	}
	deadline, has := stream.Deadline()
	left := time.Until(deadline)
	early := min(max((tracing.Clock()-c.arrived+left)/8, 10*time.Millisecond), time.Second)
	return has && left < early
}

// cancelCode is the code for a cause.
func cancelCode(cause error) codes.Code {
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(cause, ErrShuttingDown):
		return codes.Unavailable
	}
	return codes.Canceled
}
