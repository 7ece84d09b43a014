package callclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// answerTimeout bounds the time to the answer to an offer. A process answers at once, so
// a process that does not is frozen, overloaded or cut off. The call then goes elsewhere.
const answerTimeout = 2 * time.Second

var errNoAnswer = errors.New("no answer in time")

// Offer implements [router.Peer].
func (p *peer) Offer(ctx context.Context, o router.Offer) (router.Exchange, error) {
	md := metadata.MD{}
	p.set.provider.InjectMetadata(ctx, md)
	callCtx, cancel := context.WithCancelCause(metadata.NewOutgoingContext(ctx, md))
	late := time.AfterFunc(answerTimeout, func() { cancel(errNoAnswer) })
	x := &exchange{peer: p, caller: ctx, cancel: cancel}
	err := x.begin(callCtx, o)
	if !late.Stop() && err == nil {
		err = &router.RefusedError{Err: errNoAnswer} // the timer has ended the stream
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return x, nil
}

// exchange is a call at a process.
type exchange struct {
	peer   *peer
	caller context.Context // of the call's caller
	cancel context.CancelCauseFunc
	stream grpc.BidiStreamingClient[servev1.CallRequest, servev1.CallResponse]
	over   bool // Recv has returned an error
}

// begin sends an offer, and waits for the answer.
func (x *exchange) begin(ctx context.Context, o router.Offer) (err error) {
	if x.stream, err = x.peer.conn.calls.Call(ctx); err != nil {
		return x.refused(err)
	}
	first := &servev1.CallRequest{Start: x.peer.start(ctx, o), Value: nil, Error: nil}
	if o.Early {
		first.Value = present(o.Value)
	}
	if err := x.stream.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return x.refused(err)
	}
	if header, err := x.stream.Header(); err == nil && len(header.Get(callwire.MetaReplica)) > 0 {
		return nil
	}
	_, err = x.stream.Recv()
	return x.refused(err)
}

// start returns the start of a call for the request of ctx.
func (p *peer) start(ctx context.Context, o router.Offer) *servev1.CallStart {
	r := identity.RequestFromContext(ctx) // every call by handle has one
	return &servev1.CallStart{
		App: p.set.app, Deployment: p.set.name, Method: o.Method, ModelId: o.ModelID, Codec: o.Codec, Streaming: o.Streaming,
		RequestId: r.ID, Route: r.Route, RpcMethod: r.RPCMethod,
	}
}

// present returns an empty value for nil, because nil is no value.
func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// refused returns the error of an offer that ended with err.
func (x *exchange) refused(err error) error {
	if why := context.Cause(x.caller); why != nil {
		return why
	}
	st := status.Convert(err)
	var why string
	if x.stream != nil {
		if reasons := x.stream.Trailer().Get(callwire.MetaRefused); len(reasons) > 0 {
			why = reasons[0]
		}
	}
	switch why {
	case callwire.RefusedFull:
		return &router.RefusedError{Why: router.Full}
	case callwire.RefusedStopping:
		return &router.RefusedError{Why: router.Stopping}
	case callwire.RefusedUnavailable:
		for _, detail := range st.Details() {
			if gone, is := detail.(*servev1.Unavailable); is {
				return callwire.DecodeUnavailable(gone)
			}
		}
	case callwire.RefusedUnknown:
		return x.peer.failure("%s; both processes must be of the same version, and SERVE_DEPLOYMENTS there must have it", st.Message())
	}
	if final(st.Code()) {
		return x.peer.failure("%s", st.Message())
	}
	return &router.RefusedError{Err: x.peer.failure("%s", st.Message())}
}

// final reports whether a code means that the same call would fail at any process.
func final(c codes.Code) bool {
	return c == codes.ResourceExhausted || c == codes.InvalidArgument || c == codes.PermissionDenied || c == codes.Unimplemented
}

// failure returns an error of a call at the process.
func (p *peer) failure(format string, args ...any) error {
	return fmt.Errorf("call deployment %q at %s: %w", p.set.name, p.addr, fmt.Errorf(format, args...))
}

// Send implements [router.Exchange].
func (x *exchange) Send(value []byte) error {
	return x.sent(x.stream.Send(&servev1.CallRequest{Start: nil, Value: present(value), Error: nil}))
}

// sent returns the error of a send. With io.EOF the stream has ended, and Recv returns the
// reason.
func (x *exchange) sent(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return x.lost(err)
}

// CloseSend implements [router.Exchange].
func (x *exchange) CloseSend(err error) error {
	if err != nil {
		last := &servev1.CallRequest{Start: nil, Value: nil, Error: x.peer.set.errors.Encode(err)}
		if err := x.sent(x.stream.Send(last)); err != nil {
			return err
		}
	}
	return x.sent(x.stream.CloseSend())
}

// Recv implements [router.Exchange].
func (x *exchange) Recv() ([]byte, error) {
	m, err := x.stream.Recv()
	switch {
	case err == nil && m.GetError() == nil:
		return m.GetValue(), nil
	case err == nil:
		return nil, x.peer.set.errors.Decode(m.GetError())
	}
	x.over = true
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	return nil, x.lost(err)
}

// lost returns the error of a stream that ended before the call did.
func (x *exchange) lost(err error) error {
	if why := context.Cause(x.caller); why != nil {
		return why
	}
	st := status.Convert(err)
	switch {
	case st.Code() == codes.DeadlineExceeded: // its clock is ahead
		return context.DeadlineExceeded
	case st.Code() == codes.ResourceExhausted:
		return x.peer.failure("%s"+callwire.TooLarge, st.Message())
	case final(st.Code()):
		return x.peer.failure("%s", st.Message())
	}
	return x.peer.failure("%w: %s", cause.ErrReplicaLost, st.Message())
}

// Close implements [router.Exchange].
func (x *exchange) Close() { x.cancel(nil) }
