package serving

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/requestid"
)

// Handle calls a function of a deployment. [AddFunction] makes it. It corresponds to
// handle.remote() in Ray Serve, and is safe for concurrent use.
type Handle[In, Out any] struct {
	way
	f func(context.Context, In) (Out, error)
}

// Call calls the function with the argument in, and returns its result. It waits until a
// replica of the deployment has a free slot, as a request does. Then it runs the function on
// the caller's goroutine. The argument and the result are not copied, so caller and function
// may share memory. The function occupies the slot until it returns. The caller keeps its
// own slot meanwhile, so a deployment that calls itself may wait for ever.
//
// If an operator runs the deployment in other processes ([CallConfig]), one of these
// processes runs the function, with a copy of in that the deployment's [Codec] makes. The
// deadline and the cancellation of ctx reach the function. Call returns when ctx ends, even
// if the function does not return. If the process is lost, the error wraps [ErrReplicaLost].
// With any error, the result is zero. If In is an [iter.Seq], or an [iter.Seq2] of a value
// and an error, the items are sent one by one. The iterator then runs on another goroutine,
// and must end when ctx ends.
//
// Inside a request or another call, ctx must be the context of that request or call, or
// derived from it, because it carries the request id, the route, the trace and the deadline.
// To make calls in parallel, start goroutines that call with the same context. Their spans
// are siblings. Outside of a request, a call is a request of its own, with a new id and its
// own sampling decision.
//
// The error is one of the following:
//
//   - the error of the function;
//   - a [*tracing.PanicError] if the function panicked, or [http.ErrAbortHandler] if it
//     panicked with that value;
//   - a [*QueueFullError] if the deployment's queue is full, or a
//     [*DeploymentUnavailableError] if its replicas do not start. If a handler returns one of
//     these errors, its client gets 503, or the status of [WithBackpressure];
//   - [context.Cause] of ctx if ctx ended while the call waited for a slot;
//   - [ErrShuttingDown], wrapped, if [Server.Shutdown] was called and the call does not
//     belong to a running request;
//   - an error with advice if no server serves the deployment yet.
//
// If the replica is stopped during the call, the function continues, and Call returns its
// result.
func (h *Handle[In, Out]) Call(ctx context.Context, in In) (Out, error) {
	c := &functionCall[In, Out]{h: h, in: in}
	err := h.call(ctx, c, false)
	return c.out, err
}

// WithModelID returns a handle for calls that use the multiplexed model with the id. The
// calls go to replicas that hold the model, if there are any. "" means no model. A call does
// not inherit the model of the caller's request. To pass it on, use [ModelID](ctx).
func (h *Handle[In, Out]) WithModelID(id string) *Handle[In, Out] {
	with := *h
	with.model = id
	return &with
}

// Idempotent returns a handle for calls that may run more than once. If a call runs in
// another process and this process is lost, the call is sent again, up to two times, unless
// the caller has already received items of a stream. Such a call also needs one round trip
// less, because its argument is sent before a process has accepted the call.
func (h *Handle[In, Out]) Idempotent() *Handle[In, Out] {
	with := *h
	with.idempotent = true
	return &with
}

// StreamHandle calls a function of a deployment that returns a stream.
// [AddStream] makes it. It is safe for concurrent use.
type StreamHandle[In, Out any] struct {
	way
	f func(context.Context, In) iter.Seq2[Out, error]
}

// Stream returns an iterator over the stream that the function returns for the argument in.
// Each range over the iterator calls the function, on the goroutine of the loop. The call
// occupies its slot until the stream ends or the loop is left, by break or return.
//
// If the call fails, the last step of the iterator has the error, and the value that the
// function yielded with it. At that time the call has ended and its slot is free. If ctx
// ends, the function decides whether the stream ends with an error. In all other respects
// Stream is like [Handle.Call].
func (h *StreamHandle[In, Out]) Stream(ctx context.Context, in In) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		c := &streamCall[In, Out]{h: h, in: in, yield: yield}
		if err := h.call(ctx, c, true); err != nil && !c.stopped {
			yield(c.last, err)
		}
	}
}

// WithModelID is like [Handle.WithModelID].
func (h *StreamHandle[In, Out]) WithModelID(id string) *StreamHandle[In, Out] {
	with := *h
	with.model = id
	return &with
}

// Idempotent is like [Handle.Idempotent].
func (h *StreamHandle[In, Out]) Idempotent() *StreamHandle[In, Out] {
	with := *h
	with.idempotent = true
	return &with
}

// way is the part of a handle that does not depend on the types of the argument and the
// result.
type way struct {
	deployment *Deployment
	method     string // name of the function; "" means __call__
	model      string // id of the multiplexed model; "" for none
	idempotent bool   // set by Idempotent
}

// replicaStart describes the call for the replica span. stream reports whether the function
// returns a stream.
func (w *way) replicaStart(stream bool) spans.ReplicaStart {
	return spans.ReplicaStart{Protocol: spans.Handle, CallMethod: w.method, Streaming: stream}
}

// call makes a replica of the deployment run the call c, on this goroutine or in another
// process. stream reports whether the function returns a stream.
func (w *way) call(ctx context.Context, c callByHandle, stream bool) error {
	d := w.deployment.built.Load()
	if d == nil {
		return w.refusal(w.deployment.noServer())
	}
	done, err := d.AdmitCall(ctx)
	if err != nil {
		return w.refusal(err)
	}
	defer done()
	if identity.RequestFromContext(ctx) == nil {
		ctx = identity.ContextWithRequest(ctx, &identity.Request{ID: requestid.New()})
	}
	start := spans.RouterStart{
		CallMethod: w.method,
		Protocol:   spans.Handle,
		Streaming:  stream,
		ModelID:    w.model,
	}
	if d.Remote {
		return w.forward(ctx, d, start, c)
	}
	a, err := d.Assign(ctx, start)
	if err != nil {
		return err
	}
	return a.Run(c)
}

var errNoServer = errors.New("no server has it: give it to NewApp, or to the app by WithDeployments, and the app to New")

// refusal returns the error of a call that no server admits. It names the function and the
// deployment, because its reader is the author of the program.
func (w *way) refusal(err error) error {
	return fmt.Errorf("call %s of deployment %q: %w", methodName(w.method), w.deployment.name, err)
}
