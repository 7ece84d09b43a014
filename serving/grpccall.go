package serving

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/spans"
)

// rpc is what the proxy knows of one call. All of it is the proxy's goroutine's.
type rpc struct {
	stream  grpc.ServerStream // grpc's
	full    string            // the full method, as it came
	md      metadata.MD
	arrived time.Time
	id      string     // the request id
	app     *grpcApp   // nil: none matched
	method  *rpcMethod // nil: it is not known

	// What the access log tells.
	ctx     context.Context   // with the proxy span; nil without an app
	span    trace.SpanContext // of the proxy span; zero if it does not record
	replica string            // unique id; empty until one took the call
	code    codes.Code        // what the client was told
	err     error             // what ended the call otherwise than by the handler's answer
}

// rpcRun is a call as a replica runs it, on a worker's goroutine.
type rpcRun struct {
	proxy  *grpcProxy
	method *rpcMethod
	md     metadata.MD
	model  string // id of the multiplexed model; empty for none
	stream *rpcStream
	routed context.Context // of assign
	place  assignment
	done   chan error // takes the end of the handler, without blocking
	room   running
}

var (
	_ call = (*rpcRun)(nil)
	_ job  = (*rpcRun)(nil)
)

// work implements [job]: it has the replica run the call.
func (r *rpcRun) work() {
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = survived(r.routed, r.proxy.access.log, v)
		}
		r.done <- err // the slot is free: the client may come back at once
		r.proxy.work.handlerDone()
	}()
	err = r.place.run(r.routed, r)
}

// running implements [call].
func (r *rpcRun) running() *running { return &r.room }

// start implements [call].
func (r *rpcRun) start() spans.ReplicaStart {
	return spans.ReplicaStart{
		Protocol:   spans.GRPC,
		CallMethod: r.method.name,
		Streaming:  r.method.info.IsServerStream,
	}
}

func (r *rpcRun) modelID() string { return r.model }

// invoke implements [call].
func (r *rpcRun) invoke(ctx context.Context, _ *replica) (err error) {
	r.stream.user = ctx
	defer func() { _, _ = status.FromError(err) }() // here a panic of its GRPCStatus is the handler's
	if len(r.method.stats) == 0 {
		return r.method.run(r.stream)
	}
	told := newRPCStats(r)
	err = errNotReturned // which a panic, or runtime.Goexit, leaves as it is
	defer func() { told.end(err) }()
	return r.method.run(told)
}

// errNotReturned is what stats handlers are told of a method that has not
// returned. The client is told the same.
var errNotReturned = status.Error(codes.Internal, textInternal)

// end implements [call]. A panic of the handler counts for more than the call's
// end, which counts for more than the handler's error, its consequence.
func (r *rpcRun) end(_ context.Context, err error) (spans.ReplicaResult, error) {
	if why := r.stream.handBack(); why != nil {
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
