package serving

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/servetrace/servetrace/serving/internal/callserver"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// serve runs the function for the call x, which another process makes. a is the slot of the
// replica that runs it.
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

// serve runs the function for the call x, which another process makes, and sends the items
// of its stream. a is the slot of the replica that runs it.
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

// recoverCodec converts a panic of the codec into the error of the call. A codec may panic
// because it may run the user's code.
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

// receiveArgument returns the argument of the call x. If In is the type of an iterator,
// receiveArgument returns at once, and each step of the iterator receives an item.
//
// If there is no argument, receiveArgument gives the slot a back. It does so even if the
// codec panics or calls runtime.Goexit.
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

// itemsOf returns the body of an iterator over the items that the call x receives, for
// reflect.MakeFunc. The only argument of the body is the iterator's yield function.
// hasError reports whether yield takes an error, too.
func itemsOf(codec Codec, x *callserver.Exchange, item reflect.Type, hasError bool) func([]reflect.Value) []reflect.Value {
	return func(args []reflect.Value) []reflect.Value {
		for {
			v, err := receiveItem(codec, x, item)
			if errors.Is(err, io.EOF) || err != nil && !hasError {
				return nil // a Seq cannot yield an error; the function finds the reason in its context
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
