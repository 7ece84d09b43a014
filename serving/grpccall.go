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
	under   context.Context   // what the stream's context is made of
	md      metadata.MD       // as it came, not to be changed
	full    string            // the full method, as it came
	proxy   *grpcProxy        // nil for a call of the proxy's own services, as is all that follows
	stream  grpc.ServerStream // grpc's
	arrived time.Duration     // by tracing.Clock
	ended   time.Duration     // by that; zero: when all is said
	id      string            // the request id
	app     *grpcApp          // nil: none matched
	method  *rpcMethod        // nil: it is not known
	request tracing.Request
	span    trace.SpanContext // of the proxy span; zero where it does not record
	ctx     context.Context   // with the proxy span; nil without an app
	replica string            // unique id; empty until one took the call
	room    running

	// Of its context: see rpcContext.
	timeout  <-chan struct{}    // closed as our own has passed; nil without one
	cancel   context.CancelFunc // of that; nil without one
	deadline time.Time
	limited  bool // whether there is a deadline

	code    codes.Code // what the client was told
	err     error      // what ended the call otherwise than by the handler's answer
	watched watched

	// The handler's goroutines': none other reads them.
	routed   context.Context // that of assign
	place    assignment
	user     context.Context // what the handler's code sees
	received bool            // whether the message of a call without a client stream has come

	done       chan outcome // to the proxy: from the handler, the watch and rpcCalls, one of each
	ops        sync.RWMutex // held for reading while grpc passes a message
	prev, next *rpc         // guarded by the proxy's rpcCalls

	mu     sync.Mutex
	phase  phase                   // open, ended or lost
	cause  error                   // why the call was lost
	told   error                   // a *messageError: grpc has told the client already
	unheed func() bool             // has the stream's end heeded no more: see rpcContext.Done
	ending context.Context         // nil: nobody has asked for it
	finish context.CancelCauseFunc // ends that
	gone   bool                    // the call is over, and its context with it
}

// messageError ends a call as one of its messages can not pass: it is too large,
// say, or can not be decoded.
type messageError struct{ status error }

func (e *messageError) Error() string { return e.status.Error() }
func (e *messageError) Unwrap() error { return e.status }

var (
	_ call              = (*rpc)(nil)
	_ job               = (*rpc)(nil)
	_ grpc.ServerStream = (*rpc)(nil)
)

// running implements [call].
func (c *rpc) running() *running { return &c.room }

// start implements [call].
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

// work implements [job]: it has the replica run the call.
func (c *rpc) work() {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = survived(c.ctx, c.proxy.access.log, v)
		}
		c.done <- outcome{err: err} // the slot is free: the client may come back at once
		c.proxy.work.handlerDone()
	}()
	err = c.place.run(c.routed, c)
}

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
	// Methods of the user's errors may ask the context, which takes mu: so none is
	// called under it.
	if why := c.handBack(context.Cause(ctx)); why != nil {
		err = heavier(err, why)
	}
	return tracing.ReplicaResult{Err: rpcFailure(err)}, err
}

// handBack is the handler's: it has returned. It gives why the call has ended,
// where that is not for the handler to say; cause is that of its context's end.
func (c *rpc) handBack(cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == lost {
		return c.cause
	}
	c.phase = ended
	if cause == nil {
		return c.told
	}
	return cause
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

// passed is told how a message passed, and keeps the error if that ends the call:
// what ends it otherwise ends the stream's context too, with a code that says so.
func (c *rpc) passed(err error) error {
	if err == nil || errors.Is(err, io.EOF) || c.isEnd(err) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told = &messageError{err}
	}
	return err
}

// isEnd tells whether err is how grpc says that the stream has ended, and then
// waits for the end of the stream's context. grpc marks a stream as done before
// that, if only by a moment: a handler that returned err in it would seem to have
// given that answer itself.
func (c *rpc) isEnd(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		<-c.stream.Context().Done()
		return true
	}
	return false
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
	err := c.stream.SendHeader(md)
	_ = c.isEnd(err) // which it is up to the handler to heed
	return err
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
	c.ops.RLock()
	defer c.ops.RUnlock()
	return c.passed(c.stream.SendMsg(m))
}

// RecvMsg implements [grpc.ServerStream].
func (c *rpc) RecvMsg(m any) error {
	if err := c.over(); err != nil {
		return err
	}
	c.ops.RLock()
	defer c.ops.RUnlock()
	if c.method.info.IsClientStream {
		return c.passed(c.stream.RecvMsg(m))
	}
	c.watched.reading.Store(c.watched.now())
	defer c.watched.reading.Store(0)
	return c.passed(c.receiveOne(m))
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
