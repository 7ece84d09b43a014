package serving

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"reflect"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/callserver"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// function describes a function that code calls by handle.
type function struct {
	name   string // name of the method; "" means __call__
	set    bool   // false if the program passed a nil function
	stream bool   // the function returns a stream
	// in and out are the types of the argument, and of the result or of each item of the
	// result's stream.
	in, out reflect.Type
	// serve runs the function for a call that another process makes.
	serve func(*router.Assignment, *callserver.Exchange) error
}

// AddFunction adds the function f to the deployment, and returns a handle by which other
// code calls f. It corresponds to a method of Ray's deployment class. method is the name of
// the function in spans and logs. It follows the rules for names of [NewApp]. If it is "",
// the name is Ray's __call__.
//
// AddFunction must be called before [New], and not concurrently for one deployment. New
// returns an error for an invalid or repeated name, and for a nil f. All replicas call the
// same f, which must be safe for concurrent use.
func AddFunction[In, Out any](d *Deployment, method string, f func(context.Context, In) (Out, error)) *Handle[In, Out] {
	h := &Handle[In, Out]{way: way{deployment: d, method: method}, f: f}
	d.methods = append(d.methods, function{
		name: method, set: f != nil, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), serve: h.serve,
	})
	return h
}

// AddStream is [AddFunction] for a function that returns a stream. The stream ends with its
// first error.
func AddStream[In, Out any](d *Deployment, method string, f func(context.Context, In) iter.Seq2[Out, error]) *StreamHandle[In, Out] {
	h := &StreamHandle[In, Out]{way: way{deployment: d, method: method}, f: f}
	d.methods = append(d.methods, function{
		name: method, set: f != nil, stream: true, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), serve: h.serve,
	})
	return h
}

// methodName returns the name of a method in spans and errors, which is __call__ for "".
func methodName(name string) string { return cmp.Or(name, semconv.DefaultCallMethod) }

// checkMethods returns an error for each function that is nil, and for each invalid or
// repeated name.
func (d *Deployment) checkMethods() error {
	var faults faults
	names := map[string]bool{}
	for _, m := range d.methods {
		shown := methodName(m.name)
		if !validName(shown) {
			faults.add("method %q: want 1 to %d letters, digits, '-', '_' or '.', or \"\" for %s",
				shown, maxNameLen, semconv.DefaultCallMethod)
		}
		if !m.set {
			faults.add("method %q: no function", shown)
		}
		if names[shown] {
			faults.add("method %q: added twice", shown)
		}
		names[shown] = true
	}
	return errors.Join(faults...)
}

// checkCrossing returns an error for each function with an argument or result that cannot
// be sent to another process.
func (d *Deployment) checkCrossing() error {
	var faults faults
	for _, m := range d.methods {
		in := m.in
		if item, is := itemOf(in); is {
			in = item
		}
		for _, t := range []struct {
			what string
			is   error
		}{
			{"argument", d.codec.Check(in)},
			{"result", d.codec.Check(m.out)},
		} {
			if t.is != nil {
				faults.add("method %q: %s: %w", methodName(m.name), t.what, t.is)
			}
		}
	}
	return errors.Join(faults...)
}

// functionCall is a call of a function by handle.
type functionCall[In, Out any] struct {
	h   *Handle[In, Out]
	in  In
	out Out // the result, valid after the call has ended without an error
}

// Describe implements [router.Call].
func (c *functionCall[In, Out]) Describe() spans.ReplicaStart { return c.h.replicaStart(false) }

// Invoke implements [router.Call].
func (c *functionCall[In, Out]) Invoke(ctx context.Context) (err error) {
	c.out, err = c.h.f(ctx, c.in)
	return err
}

// End implements [router.Call].
func (c *functionCall[In, Out]) End(ctx context.Context, err error) (spans.ReplicaResult, error) {
	return endOfCall(ctx, err), err
}

// endOfCall returns the result of a call by handle that ended with err, for the replica
// span. If the context has ended too, the result has the cause of that end in place of err,
// unless err is a panic.
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
	yield func(Out, error) bool // yield of the caller's loop

	last     Out  // the value beside the error with which the function ended its stream
	stopped  bool // the caller has left its loop
	yielded  bool // the caller has received an item from another process
	inCaller bool // the body of the caller's loop is running
}

var _ router.CallerCode = (*streamCall[int, int])(nil)

// Describe implements [router.Call].
func (c *streamCall[In, Out]) Describe() spans.ReplicaStart { return c.h.replicaStart(true) }

// InCaller implements [router.CallerCode].
func (c *streamCall[In, Out]) InCaller() bool { return c.inCaller }

// Invoke implements [router.Call]. It does not yield the error that ends the stream. Stream
// yields it later, when the slot is free and the span has ended.
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

// End implements [router.Call]. If the caller has left its loop, even by a panic, the call
// has no error.
func (c *streamCall[In, Out]) End(ctx context.Context, err error) (spans.ReplicaResult, error) {
	if c.inCaller {
		c.stopped, err = true, nil
	}
	return endOfCall(ctx, err), err
}
