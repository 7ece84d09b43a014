package serving

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// method describes a function of a deployment, for its faults.
type method struct {
	name string // "" is __call__
	set  bool   // it has a function
}

// AddFunction adds a function to the deployment that other code calls by handle, and
// returns the handle. It is a method of Ray's deployment class; method is its name in
// spans and logs, by the rules of [NewApp], and "" is Ray's __call__.
//
// Call it before [New], and from one goroutine at a time. New reports its faults. The
// replicas share f, which must be safe for concurrent use.
func AddFunction[In, Out any](d *Deployment, method string, f func(context.Context, In) (Out, error)) *Handle[In, Out] {
	d.add(method, f != nil)
	return &Handle[In, Out]{way: way{deployment: d, method: method}, f: f}
}

// AddStream adds a function that returns a stream, and returns the handle. The stream
// ends with its first error. In all else it is like [AddFunction].
func AddStream[In, Out any](d *Deployment, method string, f func(context.Context, In) iter.Seq2[Out, error]) *StreamHandle[In, Out] {
	d.add(method, f != nil)
	return &StreamHandle[In, Out]{way: way{deployment: d, method: method}, f: f}
}

func (d *Deployment) add(name string, set bool) {
	d.methods = append(d.methods, method{name: name, set: set})
}

func (d *Deployment) checkMethods() error {
	var faults []error
	names := map[string]bool{}
	for _, m := range d.methods {
		shown := m.name
		if shown == "" {
			shown = semconv.DefaultCallMethod
		}
		if !validName(shown) {
			faults = append(faults, fmt.Errorf("method %q: want 1 to %d letters, digits, '-', '_' or '.', or \"\" for %s",
				shown, maxNameLen, semconv.DefaultCallMethod))
		}
		if !m.set {
			faults = append(faults, fmt.Errorf("method %q: no function", shown))
		}
		if names[shown] {
			faults = append(faults, fmt.Errorf("method %q: added twice", shown))
		}
		names[shown] = true
	}
	return errors.Join(faults...)
}

type functionCall[In, Out any] struct {
	h   *Handle[In, Out]
	in  In
	out Out
}

// Start implements [router.Call].
func (c *functionCall[In, Out]) Start() spans.ReplicaStart { return c.h.replicaStart(false) }

// Invoke implements [router.Call].
func (c *functionCall[In, Out]) Invoke(ctx context.Context) (err error) {
	c.out, err = c.h.f(ctx, c.in)
	return err
}

// End implements [router.Call].
func (c *functionCall[In, Out]) End(ctx context.Context, err error) (spans.ReplicaResult, error) {
	return endOfCall(ctx, err), err
}

// endOfCall returns the result of a call by handle with err, for its span. An error
// after the context's end counts as its consequence.
func endOfCall(ctx context.Context, err error) spans.ReplicaResult {
	if err != nil && !cause.IsPanic(err) && ctx.Err() != nil {
		err = cause.OfUser(ctx)
	}
	return spans.ReplicaResult{Err: err}
}

// streamCall is a call of a stream by handle, while its caller ranges over it.
type streamCall[In, Out any] struct {
	h     *StreamHandle[In, Out]
	in    In
	yield func(Out, error) bool // of the caller's loop

	last     Out  // came with the error that ended the stream
	stopped  bool // the caller wants no more
	inCaller bool // the loop's body runs
}

var _ router.CallerCode = (*streamCall[int, int])(nil)

// Start implements [router.Call].
func (c *streamCall[In, Out]) Start() spans.ReplicaStart { return c.h.replicaStart(true) }

// InCaller implements [router.CallerCode].
func (c *streamCall[In, Out]) InCaller() bool { return c.inCaller }

// Invoke implements [router.Call]. The caller does not get an error that ends the stream
// yet: first the slot is freed, and the span ends.
func (c *streamCall[In, Out]) Invoke(ctx context.Context) error {
	for out, err := range c.h.f(ctx, c.in) {
		if err != nil {
			c.last = out
			return err
		}
		c.inCaller = true
		more := c.yield(out, nil)
		c.inCaller = false
		if !more {
			c.stopped = true
			return nil
		}
	}
	return nil
}

// End implements [router.Call]. A caller that left its loop, in any way, is no error of
// the stream.
func (c *streamCall[In, Out]) End(ctx context.Context, err error) (spans.ReplicaResult, error) {
	if c.inCaller {
		c.stopped, err = true, nil
	}
	return endOfCall(ctx, err), err
}
