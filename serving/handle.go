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

// Handle calls a function of a deployment, in Ray's words handle.remote().
// [AddFunction] makes it. It is safe for concurrent use.
type Handle[In, Out any] struct {
	way
	f func(context.Context, In) (Out, error)
}

// Call has a replica of the deployment run the function with in, and returns its results.
// It waits for a slot as a request does, and then runs the function on the caller's
// goroutine, within this process: in and out are passed as they are, not copied, so that
// both sides may share memory. The callee holds its slot until the function has returned.
// The caller keeps its own slot meanwhile, so a deployment that calls itself may wait for
// ever.
//
// If an operator runs the deployment in other processes ([CallConfig]), one of these
// processes runs the function. It gets a copy of in, made by the deployment's [Codec].
// Deadline and cancellation reach the function. Call returns when ctx ends, even if the
// function does not return. It fails with [ErrReplicaLost], wrapped, if the process is
// lost. With an error, out is zero. If In is an [iter.Seq] or an [iter.Seq2] of a value
// and an error, the function gets the items as they come. The iterator runs on another
// goroutine, and must end when ctx does.
//
// Inside a request or another call, ctx must be its context or one derived from it: it
// carries the request id, the route, the trace, the deadline and the cancellation. Calls
// in parallel are goroutines that share a context; their spans are siblings. Outside, a
// call is a request of its own, with a new id and its own sampling decision.
//
// It fails with
//
//   - the error of the function;
//   - a [*tracing.PanicError] if the function panicked, or [http.ErrAbortHandler] if it
//     panicked with that value;
//   - a [*QueueFullError] if the deployment's queue is full, and a
//     [*DeploymentUnavailableError] if it has no replica and starts none. If a handler
//     returns either, its client gets 503, or the status of [WithBackpressure];
//   - [context.Cause] of ctx if ctx ended while the call waited for a slot;
//   - [ErrShuttingDown], wrapped, after [Server.Shutdown] was called: then only
//     calls inside of requests in flight go on;
//   - an error with advice if no server serves the deployment yet.
//
// If the replica is stopped meanwhile, the function runs on, and its result counts. Only
// the caller waits for the function, and the caller can cancel ctx.
func (h *Handle[In, Out]) Call(ctx context.Context, in In) (Out, error) {
	c := &functionCall[In, Out]{h: h, in: in}
	err := h.call(ctx, c, false)
	return c.out, err
}

// WithModelID returns a handle for calls that need the multiplexed model id. The calls go
// to replicas that hold the model, if there are any. "" means no model. The model of the
// caller's own request is not passed on automatically: use [ModelID](ctx).
func (h *Handle[In, Out]) WithModelID(id string) *Handle[In, Out] {
	with := *h
	with.model = id
	return &with
}

// Idempotent returns a handle for calls that may run twice. If a process with such a call
// is lost, the call is sent again, up to two times. This does not happen if the caller
// has already received items of a stream. Such a call also needs one round trip less.
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

// Stream returns the function's stream for in. The call begins when a loop ranges over
// the stream. Each range is a call of its own, on the loop's goroutine. The call holds
// its slot until the stream has ended or the loop was left. Break out of the loop, or
// return, to end the stream early.
//
// An error comes last, with the function's value beside it. By then the call has ended
// and its slot is free. In errors and all else it is like [Handle.Call]. If ctx ends, the
// stream may end early without an error, as its function decides.
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

// way is the part of a handle that does not depend on the function's type.
type way struct {
	deployment *Deployment
	method     string // "" is __call__
	model      string // "" for none
	idempotent bool
}

func (w *way) replicaStart(stream bool) spans.ReplicaStart {
	return spans.ReplicaStart{Protocol: spans.Handle, CallMethod: w.method, Streaming: stream}
}

// call makes a replica of the deployment run c, on this goroutine or in another process.
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

// refusal returns the error of a call that was not admitted. It is for the author of the
// program.
func (w *way) refusal(err error) error {
	return fmt.Errorf("call %s of deployment %q: %w", methodName(w.method), w.deployment.name, err)
}
