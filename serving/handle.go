package serving

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// Handle calls a function of a deployment, in Ray's words handle.remote().
// [AddFunction] makes it. It is safe for concurrent use.
type Handle[In, Out any] struct {
	way
	f func(context.Context, In) (Out, error)
}

// Call has a replica of the deployment run the function with in, and gives what
// it returned. It waits for a slot as a request does, and then runs the function
// on the caller's goroutine, within this process: in and out are passed as they
// are, not copied, so that both sides may share what they point to. The slot is
// the callee's until the function has returned. The caller keeps its own slot
// meanwhile: a deployment that calls itself may wait for ever.
//
// Inside a request or another call the context must be the one that came with
// that, or one derived from it: it carries request id, route and trace, and the
// deadline and cancellation, which the function should heed. Calls in parallel
// are goroutines that share a context; their spans are siblings. Outside, a call
// is a request of its own with a fresh id and the decision to sample it.
//
// It fails with
//
//   - what the function returned;
//   - a [*tracing.PanicError] if it panicked, or [http.ErrAbortHandler] if it
//     panicked with that;
//   - a [*QueueFullError] if the deployment's queue is full, and a
//     [*DeploymentUnavailableError] if it has no replica and will get none. A
//     handler that returns either has its client told 503;
//   - [context.Cause] of ctx if that ended while the call waited for a slot;
//   - [ErrShuttingDown], wrapped, after [Server.Shutdown] was called: then only
//     calls inside of what is in flight go on;
//   - an error that says so where no server serves the deployment yet.
//
// A function whose replica is stopped meanwhile runs on, and its result counts:
// there is nobody whom it would keep waiting but its caller, who has a context.
func (h *Handle[In, Out]) Call(ctx context.Context, in In) (Out, error) {
	c := &functionCall[In, Out]{h: h, in: in}
	err := h.call(ctx, c, false)
	return c.out, err
}

// WithModelID gives a handle whose calls are for that multiplexed model; it goes
// to replicas that hold the model, where there are any. "" is for none. The
// model of the caller's own request is not handed on by itself: pass
// [ModelID](ctx) for that.
func (h *Handle[In, Out]) WithModelID(id string) *Handle[In, Out] {
	with := *h
	with.model = id
	return &with
}

// StreamHandle calls a function of a deployment that answers with a stream.
// [AddStream] makes it. It is safe for concurrent use.
type StreamHandle[In, Out any] struct {
	way
	f func(context.Context, In) iter.Seq2[Out, error]
}

// Stream gives the stream that the function answers in with. Nothing happens
// before somebody ranges over it; each range is a call of its own, on the
// goroutine that ranges, and holds its slot until the stream has ended or the
// loop was left. Break out of the loop, or return, to end the stream early.
//
// An error is the last that comes, with what the function gave along with it.
// By then the call has ended and its slot is free. The errors, and all else, are
// as [Handle.Call] says. A stream that ends early because ctx has ended does so
// without an error if its function chose to.
func (h *StreamHandle[In, Out]) Stream(ctx context.Context, in In) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		c := &streamCall[In, Out]{h: h, in: in, yield: yield}
		if err := h.call(ctx, c, true); err != nil && !c.stopped {
			yield(c.last, err)
		}
	}
}

// WithModelID is as that of [Handle].
func (h *StreamHandle[In, Out]) WithModelID(id string) *StreamHandle[In, Out] {
	with := *h
	with.model = id
	return &with
}

// way is what a handle knows apart from the function's type.
type way struct {
	deployment *Deployment
	method     string // "" is __call__
	model      string // "" for none
}

func (w *way) replicaStart(stream bool) spans.ReplicaStart {
	return spans.ReplicaStart{Protocol: spans.Handle, CallMethod: w.method, Streaming: stream}
}

// call has a replica of the deployment run c, on this goroutine.
func (w *way) call(ctx context.Context, c call, stream bool) error {
	t := w.deployment.target.Load()
	if t == nil {
		return w.refusal(errNoServer)
	}
	if err := t.admitCall(ctx); err != nil {
		return w.refusal(err)
	}
	defer t.work.handlerDone()
	if identity.RequestFromContext(ctx) == nil {
		ctx = identity.ContextWithRequest(ctx, &identity.Request{ID: uuid.NewString()})
	}
	routed, a, err := t.assign(ctx, spans.RouterStart{
		CallMethod: w.method,
		Protocol:   spans.Handle,
		Streaming:  stream,
		ModelID:    w.model,
	})
	if err != nil {
		return err
	}
	return a.run(routed, c)
}

var errNoServer = errors.New("no server has it: give it to NewApp, or to the app by WithDeployments, and the app to New")

// refusal is why a call was not let in, for whoever puts the program together.
func (w *way) refusal(err error) error {
	method := w.method
	if method == "" {
		method = semconv.DefaultCallMethod
	}
	return fmt.Errorf("call %s of deployment %q: %w", method, w.deployment.name, err)
}

// admitCall counts a call by handle in, as work says. Only a call that is not let
// in for its own sake is worth a look at where it comes from.
func (t *target) admitCall(ctx context.Context) error {
	err := t.work.admitCall(false)
	if err == nil {
		return nil
	}
	if c := scope.FromContext(ctx); c != nil && c.Replica.Server == t.work && !c.Ended() {
		return t.work.admitCall(true)
	}
	return err
}
