package serving

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/semconv"
)

// method is a function of a deployment as its faults are told.
type method struct {
	name string // "" is __call__
	set  bool   // it has a function
}

// AddFunction gives the deployment a function that others call by handle, and
// returns the handle. It is a method of Ray's deployment class; method names it
// in spans and logs, as [NewApp] says of names, and "" is Ray's __call__.
//
// Call it while the program is put together: before [New], and from one
// goroutine at a time. New reports its faults. The replicas share f, which must
// be safe for concurrent use.
func AddFunction[In, Out any](d *Deployment, method string, f func(context.Context, In) (Out, error)) *Handle[In, Out] {
	d.add(method, f != nil)
	return &Handle[In, Out]{way: way{deployment: d, method: method}, f: f}
}

// AddStream gives the deployment a function that answers with a stream, and
// returns the handle. The stream that f returns ends with its first error. All
// else is as [AddFunction] says.
func AddStream[In, Out any](d *Deployment, method string, f func(context.Context, In) iter.Seq2[Out, error]) *StreamHandle[In, Out] {
	d.add(method, f != nil)
	return &StreamHandle[In, Out]{way: way{deployment: d, method: method}, f: f}
}

func (d *Deployment) add(name string, set bool) {
	d.methods = append(d.methods, method{name: name, set: set})
}

// checkMethods returns every fault of the deployment's functions.
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

// functionCall is a call of a function by handle.
type functionCall[In, Out any] struct {
	h    *Handle[In, Out]
	in   In
	out  Out
	room running
}

func (c *functionCall[In, Out]) running() *running { return &c.room }

func (c *functionCall[In, Out]) start() spans.ReplicaStart { return c.h.replicaStart(false) }
func (c *functionCall[In, Out]) modelID() string           { return c.h.model }

// invoke implements [call].
func (c *functionCall[In, Out]) invoke(ctx context.Context, _ *replica) (err error) {
	c.out, err = c.h.f(ctx, c.in)
	return err
}

// end implements [call].
func (c *functionCall[In, Out]) end(ctx context.Context, err error) (spans.ReplicaResult, error) {
	return endOfCall(ctx, err), err
}

// endOfCall is how a call by handle ended with err, as its span shows it. An
// error after the context's end is taken for its consequence.
func endOfCall(ctx context.Context, err error) spans.ReplicaResult {
	if err != nil && !isPanic(err) && ctx.Err() != nil {
		err = endOf(ctx)
	}
	return spans.ReplicaResult{Err: err}
}

// streamCall is a call of a stream by handle, while its caller ranges over it.
type streamCall[In, Out any] struct {
	h     *StreamHandle[In, Out]
	in    In
	yield func(Out, error) bool // of the caller's loop

	last    Out  // came with the error that ended the stream
	stopped bool // the caller wants no more
	room    running
}

func (c *streamCall[In, Out]) running() *running { return &c.room }

func (c *streamCall[In, Out]) start() spans.ReplicaStart { return c.h.replicaStart(true) }
func (c *streamCall[In, Out]) modelID() string           { return c.h.model }

// invoke implements [call]. An error that ends the stream is not for the caller
// yet: by then the slot is to be free, and the span to have ended.
func (c *streamCall[In, Out]) invoke(ctx context.Context, _ *replica) error {
	u := &c.room
	for out, err := range c.h.f(ctx, c.in) {
		if err != nil {
			c.last = out
			return err
		}
		u.inCaller = true
		more := c.yield(out, nil)
		u.inCaller = false
		if !more {
			c.stopped = true
			return nil
		}
	}
	return nil
}

// end implements [call]. A caller that left its loop, by whatever way, is no
// error of the stream.
func (c *streamCall[In, Out]) end(ctx context.Context, err error) (spans.ReplicaResult, error) {
	if c.room.inCaller {
		c.stopped, err = true, nil
	}
	return endOfCall(ctx, err), err
}
