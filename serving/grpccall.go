package serving

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
)

// rpc is one call. The goroutine of the proxy has it, and a worker's goroutine runs the
// user's code; each field says whose it is.
type rpc struct {
	// Set before the worker starts.
	proxy   *grpcProxy
	full    string // the full method, as it came
	md      metadata.MD
	app     *grpcApp   // nil: none matched
	method  *rpcMethod // nil: it is not known
	request identity.Request
	routed  context.Context // of assign
	place   assignment      // zero until a replica has accepted the call
	done    chan error      // takes the end of the handler, without blocking

	stream rpcStream // of both goroutines
	room   running   // the worker's

	// The proxy's, for the access log.
	ctx  context.Context   // with the proxy span; nil without an app
	span trace.SpanContext // of the proxy span; zero if it does not record
	code codes.Code        // of the answer to the client
	err  error             // the end of the call, if that is not the handler's answer
}

var (
	_ call = (*rpc)(nil)
	_ job  = (*rpc)(nil)
)

// work implements [job]: it has the replica run the call.
func (c *rpc) work() {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = survived(c.routed, c.proxy.access.log, v)
		}
		c.done <- err // the slot is free: the client may come back at once
		c.proxy.work.handlerDone()
	}()
	err = c.place.run(c.routed, c)
}

// running implements [call].
func (c *rpc) running() *running { return &c.room }

// start implements [call].
func (c *rpc) start() spans.ReplicaStart {
	return spans.ReplicaStart{
		Protocol:   spans.GRPC,
		CallMethod: c.method.name,
		Streaming:  c.method.info.IsServerStream,
	}
}

func (c *rpc) modelID() string { return c.request.ModelID }

// invoke implements [call].
func (c *rpc) invoke(ctx context.Context, _ *replica) (err error) {
	c.stream.user = ctx
	defer func() { _, _ = status.FromError(err) }() // here a panic of its GRPCStatus is the handler's
	if len(c.method.stats) == 0 {
		return c.method.run(&c.stream)
	}
	told := newRPCStats(c)
	err = errNotReturned // which a panic, or runtime.Goexit, leaves as it is
	defer func() { told.end(err) }()
	return c.method.run(told)
}

// errNotReturned is the error that stats handlers and the client get for a method
// that has not returned.
var errNotReturned = status.Error(codes.Internal, textInternal)

// end implements [call]. A panic of the handler counts for more than the call's
// end, which counts for more than the handler's error, its consequence.
func (c *rpc) end(_ context.Context, err error) (spans.ReplicaResult, error) {
	if why := c.stream.handBack(); why != nil {
		err = heavier(err, why)
	}
	return spans.ReplicaResult{Err: rpcFailure(err)}, err
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
