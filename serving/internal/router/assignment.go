package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/tracing"
)

// Assignment is a slot of a replica that is reserved for a call. It also holds the state of
// the call while the replica runs it, so that slot and state need one allocation together. A
// nil Assignment means that a call got no slot.
//
// A request by HTTP or gRPC goes through Start, started.Run, Run, runWithSpan and invoke. A call
// by handle begins with Run.
type Assignment struct {
	deployment *Deployment
	member     *member
	routed     context.Context // the call's context, with the router span as the current span
	unsampled  bool            // this process has a router span that does not record

	// Set or completed by Run and Start.
	call    Call
	user    context.Context  // context of the user's code, with the replica span
	request identity.Request // identity of the call in the replica
	scope   scope.Call       // stored in user, so that batching and multiplexing find the replica

	// Set by Start.
	done chan struct{}
	err  error // written before done is closed
}

func newAssignment(routed context.Context, unsampled bool, d *Deployment, m *member, model string) *Assignment {
	r := m.replica
	a := &Assignment{deployment: d, member: m, routed: routed, unsampled: unsampled}
	a.request.App, a.request.Deployment, a.request.ModelID = d.App, d.Name, model
	a.request.Component = r.component // StartReplica sets the rest
	a.scope.Replica = r.scope
	return a
}

// Start makes the replica run c on another goroutine, and returns at once. Until c has
// ended, the server counts it as a running handler.
func (a *Assignment) Start(c Call) {
	a.call, a.done = c, make(chan struct{})
	a.deployment.shared.Counter.HandlerStarts()
	a.deployment.shared.Workers.Start((*started)(a))
}

// started is an Assignment as an inflight.Job: a worker goroutine of the server runs it after
// Start.
type started Assignment

// Run implements [inflight.Job].
func (s *started) Run() {
	a, shared := (*Assignment)(s), s.deployment.shared
	a.err = cause.ErrGoexit
	defer func() {
		if v := recover(); v != nil {
			a.err = shared.Log.Recovered(a.routed, v)
		}
		close(a.done)
		shared.Counter.HandlerDone()
	}()
	a.err = a.Run(a.call)
}

// Run makes the replica run c, with the context that was passed to Assign. It returns when
// the user's code has returned, even if the context has ended long before. At that time, the
// slot is free.
//
// If the call ended without an ordinary response, the error has the reason: the error of the
// user's code, a *tracing.PanicError, or the cause of the context's end.
func (a *Assignment) Run(c Call) error {
	// Deferred, because user code may end the goroutine with runtime.Goexit.
	defer a.deployment.router.release(a.member, a.request.ModelID)
	return a.runWithSpan(c)
}

// runWithSpan runs the user's code for c, with the replica span around it. The work after
// the call is deferred, because user code may end the goroutine with runtime.Goexit.
func (a *Assignment) runWithSpan(c Call) (err error) {
	r := a.member.replica
	a.call, a.scope.Task = c, c
	began := time.Now()
	start := c.Describe()
	start.Request, start.Unsampled = &a.request, a.unsampled
	ctx, span := a.deployment.shared.Tracer.StartReplica(scope.ContextWithCall(a.routed, &a.scope), start)
	a.user = ctx
	r.scope.Metrics.Began()

	err = cause.ErrGoexit
	defer func() {
		a.scope.End()
		var result spans.ReplicaResult
		result, err = c.End(a.user, err)
		span.EndReplica(result)
		took := time.Since(began)
		r.scope.Metrics.Done(a.request.Route, took, err != nil, span.Context())
		if start.Protocol == spans.Handle {
			a.logCall(start.CallMethod, took, err)
		}
	}()
	err = a.invoke()
	return err
}

// invoke runs the user's code and returns its error. A panic becomes an error, unless it
// belongs to the caller's code.
func (a *Assignment) invoke() (err error) {
	defer func() {
		if in, is := a.call.(CallerCode); is && in.InCaller() {
			return // the panic continues in the caller, with its stack
		}
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler // the handler wants the response to be cut
		default:
			p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
			a.logPanic(p)
			err = p
		}
	}()
	return scope.Touch(a.call.Invoke(a.user)) // Touch makes a faulty method of the error panic here
}

// Done returns a channel that is closed when the call of Start has ended and its slot is
// free.
func (a *Assignment) Done() <-chan struct{} { return a.done }

// Err returns the error of the call of Start, as Run would return it. It must not be called
// before Done is closed.
func (a *Assignment) Err() error { return a.err }

// CutOff returns a context that ends when a proxy must end the request although the handler
// still runs, because the replica or the server stops. The cause of the context is the
// reason.
func (a *Assignment) CutOff() context.Context { return a.member.replica.cutOff }

// UniqueID returns the replica's unique id, or "" for a nil Assignment.
func (a *Assignment) UniqueID() string {
	if a == nil {
		return ""
	}
	return a.member.replica.uniqueID()
}

// Recovered logs the panic v of user code that runs before or after Run, such as a codec. It
// returns the panic as an error.
func (a *Assignment) Recovered(v any) error { return a.deployment.shared.Log.Recovered(a.routed, v) }

func (a *Assignment) logPanic(p *tracing.PanicError) {
	a.deployment.shared.Log.LogAttrs(a.user, slog.LevelError, "handler panicked",
		slog.String(tracing.LogApp, a.request.App),
		slog.String(tracing.LogDeployment, a.request.Deployment),
		slog.String(tracing.LogReplica, a.UniqueID()),
		slog.String(tracing.LogRequestID, a.request.ID),
		slog.Any("panic", p.Value),
		slog.String("stack", string(p.Stack)))
}

// logCall writes the line of the access log for a call by handle, in Ray's form. Its level
// is debug, even after an error, because one request may make many calls. The caller gets
// each error, and a panic has its own line.
func (a *Assignment) logCall(method string, took time.Duration, err error) {
	log := a.deployment.shared.Log
	if !log.Wants(a.user, slog.LevelDebug) {
		return
	}
	code := "OK"
	switch {
	case err == nil:
	case cause.IsCancellation(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code = "CANCELLED"
	default:
		code = "ERROR"
	}
	log.Write(a.user, slog.LevelDebug, "call", accesslog.Entry{
		Method: "CALL", Code: code, Took: took, RequestID: a.request.ID,
		Route: a.request.Route, CallMethod: cmp.Or(method, semconv.DefaultCallMethod),
		App: a.request.App, Deployment: a.request.Deployment, Replica: a.UniqueID(),
		Err: err,
	})
}
