package grpcproxy

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// call is one gRPC call. The proxy's goroutine and the handler's goroutine use it. The
// handler's goroutine runs the user's code.
type call struct {
	// The fields below are set before the handler's goroutine starts.
	proxy    *proxy
	full     string // the full name of the method, as the client sent it
	md       metadata.MD
	app      *app    // nil if the metadata names no app
	method   *method // nil if the app has no such method
	request  identity.Request
	assigned *router.Assignment // nil until a replica has the call

	stream callStream // used by both goroutines

	// Only the proxy's goroutine uses the fields below, for the access log.
	ctx  context.Context   // context with the proxy span; nil without an app
	span trace.SpanContext // context of the proxy span; zero if the span does not record
	code codes.Code        // code of the status that the client gets
	err  error             // error that ended the call, of the handler or the runtime; nil for an ordinary answer
}

var _ router.Call = (*call)(nil)

// Describe implements [router.Call].
func (c *call) Describe() spans.ReplicaStart {
	return spans.ReplicaStart{
		Protocol:   spans.GRPC,
		CallMethod: c.method.name,
		Streaming:  c.method.info.IsServerStream,
	}
}

// Invoke implements [router.Call].
func (c *call) Invoke(ctx context.Context) (err error) {
	c.stream.user = ctx
	defer func() { _, _ = status.FromError(err) }() // calls err.GRPCStatus here, so that its panic counts as a panic of the handler
	if len(c.method.stats) == 0 {
		return c.method.run(&c.stream)
	}
	reporting := newStatsStream(c)
	err = errNotReturned // stays set if run panics or calls runtime.Goexit
	defer func() { reporting.end(err) }()
	return c.method.run(reporting)
}

// errNotReturned is the error that stats handlers get if a method panicked or ended its
// goroutine.
var errNotReturned = status.Error(codes.Internal, textInternal)

// End implements [router.Call]. It returns the error that counts. A panic of the handler has
// priority over the reason for an early end of the call. That reason has priority over
// another error of the handler, because it mostly causes that error.
func (c *call) End(_ context.Context, err error) (spans.ReplicaResult, error) {
	if why := c.stream.completeCall(); why != nil {
		err = cause.Heavier(err, why)
	}
	return spans.ReplicaResult{Err: failure(err)}, err
}

// run runs the user's method, inside the user's interceptors.
func (m *method) run(stream grpc.ServerStream) error {
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
