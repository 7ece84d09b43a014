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
	"github.com/servetrace/servetrace/serving/internal/callserver"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/tracing"
)

// callByHandle is a call by handle, in this process or to another process.
type callByHandle interface {
	router.Call
	router.Carried // to be called after prepare
	// prepare encodes the argument for Carry, unless it is a stream.
	prepare() (argument, error)
	// begun reports whether the caller has already received an item of a stream.
	begun() bool
}

// mostTries is the largest number of times that an idempotent call is sent.
const mostTries = 3

// forward sends the call c to another process, which runs it.
func (w *way) forward(ctx context.Context, d *router.Deployment, s spans.RouterStart, c callByHandle) error {
	arg, err := c.prepare()
	if err != nil {
		return fmt.Errorf("encode the argument of a call of deployment %q: %w", d.Name, err)
	}
	o := router.Offer{Method: w.method, ModelID: w.model, Codec: w.deployment.codec.Name(), Streaming: s.Streaming}
	if o.Early = w.idempotent && !arg.stream; o.Early {
		o.Value = arg.value
	}
	for try := 1; ; try++ {
		err := d.Forward(ctx, s, o, c)
		if !o.Early || try == mostTries || c.begun() || !errors.Is(err, ErrReplicaLost) || ctx.Err() != nil {
			return err
		}
	}
}

// argument is an encoded argument, or a stream of items.
type argument struct {
	value  []byte
	stream bool
}

// encodeArgument encodes in, unless it is a stream.
func encodeArgument[In any](w *way, in In) (argument, error) {
	if _, is := itemOf(reflect.TypeFor[In]()); is {
		return argument{stream: true}, nil
	}
	data, err := w.deployment.codec.Marshal(in)
	return argument{value: data}, err
}

// itemOf returns the type of the items of a stream of arguments, an iter.Seq[T] or an
// iter.Seq2[T, error].
func itemOf(t reflect.Type) (item reflect.Type, is bool) {
	switch {
	case t.Kind() != reflect.Func:
		return nil, false
	case t.CanSeq2() && t.In(0).In(1) == typeError:
		return t.In(0).In(0), true
	case t.CanSeq():
		return t.In(0).In(0), true
	}
	return nil, false
}

var typeError = reflect.TypeFor[error]()

// sender sends the argument of a call, a stream on a goroutine of its own.
type sender struct {
	sending  sync.WaitGroup
	panicked error // panic of the iterator; wait returns it
}

// send sends the argument. A stream is sent in the background.
func (s *sender) send(w *way, x router.AcceptedCall, arg argument, in any) error {
	if !arg.stream {
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
		_ = x.CloseSend(sendItems(w.deployment.codec, x, in)) // Recv returns an error of the sending
	})
	return nil
}

// ended returns nil for io.EOF, which is not a failure. Send returns io.EOF if the callee
// has ended the call, and the next Recv returns the reason. Recv returns io.EOF at the
// end of a stream.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sendItems sends the items of a stream of arguments, and returns the error that ended
// the iteration, or nil.
func sendItems(codec Codec, x router.AcceptedCall, in any) (end error) {
	v := reflect.ValueOf(in)
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

// wait closes the call, and waits for the goroutine that sends a stream. It returns err,
// or the panic of the iterator if it panicked.
func (s *sender) wait(x router.AcceptedCall, err error) error {
	x.Close() // ends a Send that still waits
	s.sending.Wait()
	if s.panicked != nil {
		return s.panicked
	}
	return err
}

// prepare implements [callByHandle].
func (c *functionCall[In, Out]) prepare() (_ argument, err error) {
	c.arg, err = encodeArgument(&c.h.way, c.in)
	return c.arg, err
}

// begun implements [callByHandle].
func (c *functionCall[In, Out]) begun() bool { return false }

// Carry implements [router.Carried].
func (c *functionCall[In, Out]) Carry(x router.AcceptedCall) error {
	var s sender
	err := s.send(&c.h.way, x, c.arg, c.in)
	if err == nil {
		err = c.receive(x)
	}
	return s.wait(x, err)
}

// receive receives the result.
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

// noEOF replaces io.EOF, for a call that ended without a result.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// prepare implements [callByHandle].
func (c *streamCall[In, Out]) prepare() (_ argument, err error) {
	c.arg, err = encodeArgument(&c.h.way, c.in)
	return c.arg, err
}

// begun implements [callByHandle].
func (c *streamCall[In, Out]) begun() bool { return c.yielded }

// Carry implements [router.Carried].
func (c *streamCall[In, Out]) Carry(x router.AcceptedCall) (err error) {
	var s sender
	defer func() { err = s.wait(x, err) }() // deferred, because the loop's body may panic
	if err := s.send(&c.h.way, x, c.arg, c.in); err != nil {
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

// serve runs the function for a call of another process.
func (h *Handle[In, Out]) serve(a *router.Assignment, x *callserver.Exchange) (err error) {
	defer recoverCodec(a, &err)
	in, err := receiveArgument[In](h.deployment.codec, a, x)
	if err != nil {
		return err
	}
	c := &functionCall[In, Out]{h: h, in: in}
	if err := a.Run(c); err != nil {
		return err
	}
	return sendResult(h.deployment.codec, x, c.out, true)
}

// serve runs the function for a call of another process.
func (h *StreamHandle[In, Out]) serve(a *router.Assignment, x *callserver.Exchange) (err error) {
	defer recoverCodec(a, &err)
	in, err := receiveArgument[In](h.deployment.codec, a, x)
	if err != nil {
		return err
	}
	var fault error // error of sending an item
	c := &streamCall[In, Out]{h: h, in: in, yield: func(out Out, _ error) bool {
		fault = sendResult(h.deployment.codec, x, out, false)
		return fault == nil
	}}
	if err := a.Run(c); err != nil {
		return err
	}
	return fault
}

// recoverCodec converts a panic of the codec, which may run the user's code, into the
// error of the call.
func recoverCodec(a *router.Assignment, err *error) {
	if v := recover(); v != nil {
		*err = a.Recovered(v)
	}
}

func sendResult(codec Codec, x *callserver.Exchange, out any, last bool) error {
	data, err := codec.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return x.Send(data, last)
}

// receiveArgument receives the argument of a call. If it is a stream, the iterator
// receives the items, on the function's goroutine. It abandons the call if there is no
// argument, also if the codec panics or ends the goroutine.
func receiveArgument[In any](codec Codec, a *router.Assignment, x *callserver.Exchange) (in In, err error) {
	received := false
	defer func() {
		if !received {
			a.Abandon()
		}
	}()
	t := reflect.TypeFor[In]()
	if item, is := itemOf(t); is {
		in, _ = reflect.MakeFunc(t, itemsOf(codec, x, item, t.CanSeq2())).Interface().(In)
		received = true
		return in, nil
	}
	data, err := x.Recv()
	if err != nil {
		return in, noEOF(err)
	}
	if err := codec.Unmarshal(data, &in); err != nil {
		return in, fmt.Errorf("decode the argument: %w", err)
	}
	received = true
	return in, nil
}

// itemsOf returns the body of an iterator over received items, for reflect.MakeFunc: the
// only argument of the iterator is yield.
func itemsOf(codec Codec, x *callserver.Exchange, item reflect.Type, hasError bool) func([]reflect.Value) []reflect.Value {
	return func(args []reflect.Value) []reflect.Value {
		for {
			v, err := receiveItem(codec, x, item)
			if errors.Is(err, io.EOF) || err != nil && !hasError {
				return nil // a Seq has no errors; the context has the reason
			}
			out := []reflect.Value{v}
			if hasError {
				e := reflect.New(typeError).Elem()
				if err != nil {
					e.Set(reflect.ValueOf(err))
				}
				out = append(out, e)
			}
			if !args[0].Call(out)[0].Bool() || err != nil {
				return nil
			}
		}
	}
}

func receiveItem(codec Codec, x *callserver.Exchange, item reflect.Type) (reflect.Value, error) {
	v := reflect.New(item)
	data, err := x.Recv()
	if err == nil {
		if err = codec.Unmarshal(data, v.Interface()); err != nil {
			err = fmt.Errorf("decode an item of the argument: %w", err)
		}
	}
	return v.Elem(), err
}
