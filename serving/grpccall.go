package serving

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/tracing"
)

// rpc is one gRPC call: what the proxy knows of it, what a replica runs of it,
// and the [grpc.ServerStream] that its handler sees.
//
// As with an HTTP response, the proxy may take the call away from a handler that
// still runs. From then on the handler's Send and Recv fail, and those that are
// under way end with grpc's stream, which ends as the proxy gives the status.
// All else that a handler calls on its context, such as grpc.SetTrailer, comes
// to grpc's stream itself, which refuses it by then.
type rpc struct {
	arrived time.Time
	stream  grpc.ServerStream // grpc's
	md      metadata.MD       // as it came, not to be changed
	full    string            // the full method, as it came
	id      string            // the request id
	app     *grpcApp          // nil: none matched
	method  *rpcMethod        // nil: it is not known
	request tracing.Request
	span    trace.SpanContext // of the proxy span; zero where it does not record
	ctx     context.Context   // with the proxy span; nil without an app
	replica string            // unique id; empty until one took the call

	own   rpcContext
	cut   context.CancelCauseFunc // ends it
	early time.Time               // see earliest

	code    codes.Code // what the client was told
	err     error      // what ended the call otherwise than by the handler's answer
	watched watched

	// The handler's goroutines': none other reads them.
	user     context.Context // what the handler's code sees
	received bool            // whether the message of a call without a client stream has come

	ops        sync.RWMutex // held for reading while grpc passes a message
	prev, next *rpc         // guarded by the proxy's rpcCalls

	mu    sync.Mutex
	phase phase // open, ended or lost
	cause error // why the call was lost
	told  error // a *messageError: grpc has told the client already
}

// messageError ends a call as one of its messages can not pass: it is too large,
// say, or can not be decoded.
type messageError struct{ status error }

func (e *messageError) Error() string { return e.status.Error() }
func (e *messageError) Unwrap() error { return e.status }

var (
	_ call              = (*rpc)(nil)
	_ grpc.ServerStream = (*rpc)(nil)
)

func (c *rpc) start() tracing.ReplicaStart {
	return tracing.ReplicaStart{
		Protocol:   tracing.GRPC,
		CallMethod: c.method.name,
		Streaming:  c.method.info.IsServerStream,
	}
}

func (c *rpc) modelID() string { return c.request.ModelID }

// invoke implements [call].
func (c *rpc) invoke(ctx context.Context, _ *replica) (err error) {
	c.user = ctx
	defer func() { _, _ = status.FromError(err) }() // here a panic of its GRPCStatus is the handler's
	if len(c.method.stats) == 0 {
		return c.method.run(c)
	}
	told := newRPCStats(c)
	err = errNotReturned // which a panic, or runtime.Goexit, leaves as it is
	defer func() { told.end(err) }()
	return c.method.run(told)
}

// errNotReturned is what stats handlers are told of a method that has not
// returned: what its client is.
var errNotReturned = status.Error(codes.Internal, textInternal)

// run runs the user's code for a call.
func (m *rpcMethod) run(stream grpc.ServerStream) error {
	if m.unary == nil {
		if m.aroundStream == nil {
			return m.stream(m.impl, stream)
		}
		return m.aroundStream(m.impl, stream, &m.info, m.stream)
	}
	reply, err := m.unary(m.impl, stream.Context(), stream.RecvMsg, m.aroundUnary)
	if err != nil {
		return err
	}
	return stream.SendMsg(reply)
}

// end implements [call]. A panic of the handler counts for more than the
// context's end, that for more than a message that could not pass, and that for
// more than the handler's error, which then only is its consequence.
func (c *rpc) end(ctx context.Context, err error) (tracing.ReplicaResult, error) {
	if c.stream.Context().Err() != nil {
		c.streamEnded() // in case that what was under way has heard of it first
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.phase == lost:
		err = heavier(err, c.cause)
	case ctx.Err() != nil:
		err = heavier(err, context.Cause(ctx))
	case c.told != nil:
		err = heavier(err, c.told)
	}
	if c.phase != lost {
		c.phase = ended
	}
	return tracing.ReplicaResult{Err: rpcFailure(err)}, err
}

// take is the proxy's: the call is to end with cause while the handler may still
// run. Unless it reports ended, the handler can no longer send or receive.
func (c *rpc) take(cause error) (found phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found = c.phase
	if found != ended {
		c.phase, c.cause = lost, cause
	}
	return found
}

// over is what the handler's operations fail with once the call is not its own
// any more.
func (c *rpc) over() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case open:
		return nil
	case lost:
		return status.Error(cancelCode(c.cause), c.cause.Error())
	}
	return status.Error(codes.Internal, "the handler of this call has returned")
}

// passing has grpc pass a message, and keeps the error if that ends the call: what
// ends it otherwise ends the stream's context too, with a code that says so.
func (c *rpc) passing(pass func(any) error, m any) error {
	c.ops.RLock()
	defer c.ops.RUnlock()
	err := pass(m)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told = &messageError{err}
	}
	return err
}

// Context implements [grpc.ServerStream].
func (c *rpc) Context() context.Context { return c.user }

// SetHeader implements [grpc.ServerStream].
func (c *rpc) SetHeader(md metadata.MD) error {
	if err := c.over(); err != nil {
		return err
	}
	return c.stream.SetHeader(md)
}

// SendHeader implements [grpc.ServerStream].
func (c *rpc) SendHeader(md metadata.MD) error {
	if err := c.over(); err != nil {
		return err
	}
	return c.stream.SendHeader(md)
}

// SetTrailer implements [grpc.ServerStream].
func (c *rpc) SetTrailer(md metadata.MD) {
	if c.over() == nil {
		c.stream.SetTrailer(md)
	}
}

// SendMsg implements [grpc.ServerStream].
func (c *rpc) SendMsg(m any) error {
	if err := c.over(); err != nil {
		return err
	}
	c.watched.writing.Store(c.watched.now())
	defer c.watched.writing.Store(0)
	return c.passing(c.stream.SendMsg, m)
}

// RecvMsg implements [grpc.ServerStream].
func (c *rpc) RecvMsg(m any) error {
	if err := c.over(); err != nil {
		return err
	}
	if c.method.info.IsClientStream {
		return c.passing(c.stream.RecvMsg, m)
	}
	c.watched.reading.Store(c.watched.now())
	defer c.watched.reading.Store(0)
	return c.passing(c.receiveOne, m)
}

// receiveOne receives the message of a call that has one. To grpc, which knows
// none of our methods, every call is a stream.
func (c *rpc) receiveOne(m any) error {
	err := c.stream.RecvMsg(m)
	switch {
	case c.received:
		return err
	case errors.Is(err, io.EOF):
		return status.Error(codes.Internal, "the call came without a message, and its method takes one")
	case err != nil:
		return err
	}
	c.received = true
	switch err := c.stream.RecvMsg(m); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return status.Error(codes.Internal, "the call came with several messages, and its method takes one")
}

// rpcContext is the context of a call. It is that of grpc's stream, which ends
// without a cause, but that it tells the client's deadline from its departure.
type rpcContext struct {
	context.Context // ends by rpc.cut alone

	deadline time.Time
	limited  bool
}

// Deadline implements [context.Context].
func (c *rpcContext) Deadline() (time.Time, bool) { return c.deadline, c.limited }

// Err implements [context.Context].
func (c *rpcContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrClientDeadline) {
		return context.DeadlineExceeded
	}
	return err
}

// begin makes the call's context of the stream's, with our own limit where it is
// sooner than the client's. The caller calls release when the call is over.
func (c *rpc) begin(stream context.Context, timeout time.Duration) (ctx context.Context, release func()) {
	own, cut := context.WithCancelCause(context.WithoutCancel(stream))
	c.cut = cut
	c.own.Context = own
	c.own.deadline, c.own.limited = stream.Deadline()
	c.early = c.earliest()
	cancel := func() {}
	if at := c.arrived.Add(timeout); timeout > 0 && (!c.own.limited || at.Before(c.own.deadline)) {
		c.own.Context, cancel = context.WithDeadlineCause(own, at, ErrRequestTimeout)
		c.own.deadline, c.own.limited = at, true
	}
	stop := context.AfterFunc(stream, c.streamEnded)
	return &c.own, func() {
		stop()
		cancel()
		cut(nil)
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
	late := !c.early.IsZero() && time.Now().After(c.early)
	switch {
	case told != nil:
		c.cut(told)
	case late, errors.Is(c.stream.Context().Err(), context.DeadlineExceeded):
		c.cut(ErrClientDeadline)
	default:
		c.cut(ErrClientGone)
	}
}

// earliest is from when on a client that cancels is taken for one whose deadline
// has come, rather than for one that does not want the answer any more. The
// client's clock began before ours, so that as a rule its reset is here before
// our timer. It is zero without a deadline of the client's.
func (c *rpc) earliest() time.Time {
	if !c.own.limited {
		return time.Time{}
	}
	early := min(max(c.own.deadline.Sub(c.arrived)/8, 10*time.Millisecond), time.Second)
	return c.own.deadline.Add(-early)
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
