package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"sync"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/tracing"
)

// callByHandle is a call by handle. A replica of this process runs it as a router.Call, or
// forward sends it to another process.
type callByHandle interface {
	router.Call
	// prepare encodes the argument, unless it is a stream.
	prepare() (argument, error)
	// carry sends the argument to the process that has accepted the call x, and receives the
	// results.
	carry(x router.AcceptedCall, arg argument) error
	// begun reports whether the caller has already received an item of the result's stream.
	begun() bool
}

// mostTries is the largest number of times that an idempotent call is sent, because the
// process that has it may be lost each time.
const mostTries = 3

// forward sends the call c to another process, which runs it. It sends an idempotent call
// again if that process is lost before the caller has received an item of the result.
func (w *way) forward(ctx context.Context, d *router.Deployment, s spans.RouterStart, c callByHandle) error {
	arg, err := c.prepare()
	if err != nil {
		return fmt.Errorf("encode the argument of a call of deployment %q: %w", d.Name, err)
	}
	o := router.Offer{Method: w.method, ModelID: w.model, Codec: w.deployment.codec.Name(), Streaming: s.Streaming}
	if o.Early = w.idempotent && arg.items == nil; o.Early {
		o.Value = arg.value
	}
	for try := 1; ; try++ {
		err := d.Forward(ctx, s, o, func(x router.AcceptedCall) error { return c.carry(x, arg) })
		if !o.Early || try == mostTries || c.begun() || !errors.Is(err, ErrReplicaLost) || ctx.Err() != nil {
			return err
		}
	}
}

// argument is the argument of a call to another process.
type argument struct {
	value []byte // the encoded argument; nil if the argument is a stream
	items any    // the iterator over the argument's items; nil if the argument is not a stream
}

// encodeArgument returns the argument for the value in. It encodes the value, unless In is
// the type of an iterator.
func encodeArgument[In any](w *way, in In) (argument, error) {
	if _, is := itemOf(reflect.TypeFor[In]()); is {
		return argument{items: in}, nil
	}
	data, err := w.deployment.codec.Marshal(in)
	return argument{value: data}, err
}

// sender sends the argument of one call. If the argument is a stream, it does so on a
// goroutine, for which wait waits.
type sender struct {
	sending  sync.WaitGroup
	panicked error // panic of the iterator, written before sending is done
}

// send sends the argument, or starts the goroutine that sends the items of a stream.
func (s *sender) send(w *way, x router.AcceptedCall, arg argument) error {
	if arg.items == nil {
		if w.idempotent { // the offer carried the argument
			return nil
		}
		return ended(x.Send(arg.value, true))
	}
	s.sending.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				s.panicked = &tracing.PanicError{Value: v, Stack: debug.Stack()}
				_ = x.CloseSend(s.panicked) // the caller gets the panic
			}
		}()
		_ = x.CloseSend(sendItems(w.deployment.codec, x, arg.items)) // Recv returns an error of the sending
	})
	return nil
}

// ended returns nil for io.EOF, which is not a failure, and err otherwise. Send returns
// io.EOF if the other process has ended the call; the next Recv then returns the reason.
// Recv returns io.EOF after the last result.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sendItems sends each item of an iterator. It returns the error of the iterator or of the
// codec that ended the iteration, or nil.
func sendItems(codec Codec, x router.AcceptedCall, items any) (end error) {
	v := reflect.ValueOf(items)
	if v.IsNil() {
		return nil
	}
	send := func(item reflect.Value) bool {
		var data []byte
		if data, end = codec.Marshal(item.Interface()); end != nil {
			return false
		}
		return x.Send(data, false) == nil
	}
	if !v.Type().CanSeq2() {
		for item := range v.Seq() {
			if !send(item) {
				break
			}
		}
		return end
	}
	for item, fault := range v.Seq2() {
		if err, is := fault.Interface().(error); is {
			return err
		}
		if !send(item) {
			break
		}
	}
	return end
}

// wait closes the call x, and waits for the goroutine that sends a stream, if there is one.
// It returns the panic of the iterator, or err if the iterator did not panic.
func (s *sender) wait(x router.AcceptedCall, err error) error {
	x.Close() // ends a Send that still waits
	s.sending.Wait()
	if s.panicked != nil {
		return s.panicked
	}
	return err
}

// prepare implements [callByHandle].
func (c *functionCall[In, Out]) prepare() (argument, error) { return encodeArgument(&c.h.way, c.in) }

// begun implements [callByHandle]. The result is not a stream, so it has no items.
func (c *functionCall[In, Out]) begun() bool { return false }

// carry implements [callByHandle].
func (c *functionCall[In, Out]) carry(x router.AcceptedCall, arg argument) error {
	var s sender
	err := s.send(&c.h.way, x, arg)
	if err == nil {
		err = c.receive(x)
	}
	return s.wait(x, err)
}

// receive receives the result of the call x and decodes it into c.out.
func (c *functionCall[In, Out]) receive(x router.AcceptedCall) error {
	data, err := x.Recv()
	if err != nil {
		return noEOF(err)
	}
	if err := c.h.deployment.codec.Unmarshal(data, &c.out); err != nil {
		return fmt.Errorf("decode the result of a call of deployment %q: %w", c.h.deployment.name, err)
	}
	return nil
}

// noEOF replaces io.EOF by io.ErrUnexpectedEOF, because the end of a call before its
// argument or its result is a failure.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// prepare implements [callByHandle].
func (c *streamCall[In, Out]) prepare() (argument, error) { return encodeArgument(&c.h.way, c.in) }

// begun implements [callByHandle].
func (c *streamCall[In, Out]) begun() bool { return c.yielded }

// carry implements [callByHandle].
func (c *streamCall[In, Out]) carry(x router.AcceptedCall, arg argument) (err error) {
	var s sender
	defer func() { err = s.wait(x, err) }() // deferred, because yield runs the caller's code, which may panic
	if err := s.send(&c.h.way, x, arg); err != nil {
		return err
	}
	for {
		data, err := x.Recv()
		if err != nil {
			return ended(err)
		}
		var out Out
		if err := c.h.deployment.codec.Unmarshal(data, &out); err != nil {
			return fmt.Errorf("decode a result of a call of deployment %q: %w", c.h.deployment.name, err)
		}
		c.yielded = true
		if !c.yield(out, nil) {
			c.stopped = true
			return nil
		}
	}
}
