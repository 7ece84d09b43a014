package callclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	servev1 "github.com/servetrace/servetrace/internal/gen/servetrace/serve/v1"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// answerTimeout bounds the wait for the answer to an offer. A process that works answers at
// once. If there is no answer in time, the router sends the call to another process.
const answerTimeout = 2 * time.Second

var errNoAnswer = errors.New("no answer in time")

// Offer implements [router.Peer].
func (p *peer) Offer(ctx context.Context, o router.Offer) (router.AcceptedCall, error) {
	x := &remoteCall{peer: p, caller: ctx, stream: p.conn.take()}
	x.forget = context.AfterFunc(ctx, x.cut)
	late := time.AfterFunc(answerTimeout, func() { x.stream.cancel(errNoAnswer) })
	err := x.begin(o)
	if !late.Stop() {
		x.stream.cancel(errNoAnswer) // the function of the timer has started, and may not have cancelled the stream yet
		if err == nil {
			err = &router.RefusedError{Err: errNoAnswer}
		}
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// remoteCall is a call that another process runs.
type remoteCall struct {
	peer   *peer
	caller context.Context // context of the caller
	forget func() bool     // stops the AfterFunc that cancels the stream when the context caller ends
	stream *stream
	whole  bool // the whole argument was sent
	over   bool // the last result was received
	closed bool // Close was called
}

// begin sends an offer to the process, and waits for the answer. It returns nil if the
// process has accepted the call.
func (x *remoteCall) begin(o router.Offer) error {
	if err := x.stream.open(x.peer.conn.calls); err != nil {
		return x.offerError(err)
	}
	first := &servev1.CallRequest{Start: x.peer.start(x.caller, o), Value: nil, Error: nil, Whole: o.Early}
	if o.Early {
		first.Value, x.whole = present(o.Value), true
	}
	if err := x.stream.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return x.offerError(err)
	}
	answer, err := x.stream.Recv()
	if err != nil {
		return x.offerError(err)
	}
	if no := answer.GetRefused(); no != nil {
		x.whole, x.over = true, true // no message of this call follows, so Close keeps the stream for the next call
		return x.peer.refusal(no)
	}
	return nil
}

// start returns the first message of a call, which has the trace and the request of ctx.
func (p *peer) start(ctx context.Context, o router.Offer) *servev1.CallStart {
	r := identity.RequestFromContext(ctx) // not nil, because each call by handle belongs to a request
	start := &servev1.CallStart{
		App: p.set.app, Deployment: p.set.name, Method: o.Method, ModelId: o.ModelID, Codec: o.Codec, Streaming: o.Streaming,
		RequestId: r.ID, Route: r.Route, RpcMethod: r.RPCMethod, TimeoutNs: 0, Propagated: nil,
	}
	if end, limited := ctx.Deadline(); limited {
		start.TimeoutNs = max(1, int64(time.Until(end)))
	}
	md := metadata.MD{}
	p.set.cfg.Provider.InjectMetadata(ctx, md)
	for key, values := range md {
		for _, value := range values {
			start.Propagated = append(start.Propagated, &servev1.Field{Key: key, Value: value})
		}
	}
	return start
}

// present returns value, or an empty slice if value is nil. In a message, nil would mean that
// the message has no value.
func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// refusal returns the error of an offer for the refusal that the process has sent.
func (p *peer) refusal(no *servev1.Refused) error {
	switch no.GetReason() {
	case servev1.Refused_REASON_FULL:
		return &router.RefusedError{Why: router.Full}
	case servev1.Refused_REASON_STOPPING:
		return &router.RefusedError{Why: router.Stopping}
	case servev1.Refused_REASON_UNAVAILABLE:
		return callwire.DecodeUnavailable(no.GetUnavailable())
	}
	return p.failure("%s; both processes must be of the same version, and SERVE_DEPLOYMENTS there must have it", no.GetText())
}

// offerError returns the error of an offer if its stream failed with err before the answer. If
// the process may be lost, it is a RefusedError, so that the router tries another process.
func (x *remoteCall) offerError(err error) error {
	why := x.streamError(err)
	if errors.Is(why, cause.ErrReplicaLost) {
		if context.Cause(x.stream.ctx) == errNoAnswer { //nolint:errorlint // Offer cancels with this very value
			why = errNoAnswer
		}
		return &router.RefusedError{Err: why}
	}
	return why
}

// final reports whether a code means that the same call would fail in any process.
func final(c codes.Code) bool {
	return c == codes.ResourceExhausted || c == codes.InvalidArgument || c == codes.PermissionDenied || c == codes.Unimplemented
}

// failure returns an error with the names of the deployment and the process, and the text of
// format and args.
func (p *peer) failure(format string, args ...any) error {
	return fmt.Errorf("call deployment %q at %s: %w", p.set.name, p.addr, fmt.Errorf(format, args...))
}

// Send implements [router.AcceptedCall].
func (x *remoteCall) Send(value []byte, whole bool) error {
	if whole {
		x.whole = true
	}
	return x.sendError(x.stream.Send(&servev1.CallRequest{Start: nil, Value: present(value), Error: nil, Whole: whole}))
}

// sendError returns the error of Send or CloseSend for an error of the stream. It returns
// io.EOF unchanged. The caller then gets the reason from Recv.
func (x *remoteCall) sendError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return x.streamError(err)
}

// CloseSend implements [router.AcceptedCall].
func (x *remoteCall) CloseSend(err error) error {
	if err != nil {
		last := &servev1.CallRequest{Start: nil, Value: nil, Error: x.peer.set.cfg.Errors.Encode(err), Whole: false}
		if err := x.sendError(x.stream.Send(last)); err != nil {
			return err
		}
	}
	return x.sendError(x.stream.CloseSend())
}

// Recv implements [router.AcceptedCall].
func (x *remoteCall) Recv() ([]byte, error) {
	if x.over {
		return nil, io.EOF
	}
	m, err := x.stream.Recv()
	if err != nil {
		return nil, x.streamError(err)
	}
	x.over = m.GetLast()
	switch {
	case m.GetError() != nil:
		return nil, x.peer.set.cfg.Errors.Decode(m.GetError())
	case m.Value == nil:
		return nil, io.EOF
	}
	return m.GetValue(), nil
}

// streamError returns the error of a call if its stream failed with err before the call ended.
func (x *remoteCall) streamError(err error) error {
	if why := context.Cause(x.caller); why != nil {
		return why
	}
	st := status.Convert(err)
	end, limited := x.caller.Deadline()
	switch {
	case st.Code() == codes.DeadlineExceeded && limited && !time.Now().Before(end):
		return context.DeadlineExceeded // the deadline has passed, and the timer of the context caller has not fired yet
	case st.Code() == codes.ResourceExhausted:
		return x.peer.failure("%s"+callwire.TooLarge, st.Message())
	case final(st.Code()):
		return x.peer.failure("%s", st.Message())
	}
	return x.peer.failure("%w: %s", cause.ErrReplicaLost, st.Message())
}

// cut ends the stream, and so the call in the other process.
func (x *remoteCall) cut() { x.stream.cancel(nil) }

// Close implements [router.AcceptedCall].
func (x *remoteCall) Close() {
	if x.closed {
		return
	}
	x.closed = true
	if x.forget() && x.whole && x.over {
		x.peer.conn.put(x.stream)
	} else {
		x.cut()
	}
}
