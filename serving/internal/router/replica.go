package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/semconv"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/tracing"
)

// Call is the work of a replica for one request or call, by HTTP, gRPC or handle. A
// replica runs it once: it calls Start, Invoke and End in that order, on one goroutine.
type Call interface {
	// Start describes the call for the replica span. The replica sets Request.
	Start() spans.ReplicaStart
	// Invoke runs the user's code with the context ctx and returns its error. The
	// replica handles panics and runtime.Goexit.
	Invoke(ctx context.Context) error
	// End is called when the user's code has returned with err: cause.ErrGoexit and
	// *tracing.PanicError included. It completes the response, and returns the result
	// for the span and the error that ended the call.
	End(ctx context.Context, err error) (spans.ReplicaResult, error)
}

// CallerCode is a Call that may run code of its caller within Invoke: the body of the
// loop over a stream.
type CallerCode interface {
	Call
	// InCaller reports whether the caller's code runs. A panic or a Goexit is then the
	// caller's, and passes through the replica.
	InCaller() bool
}

// Replica runs a deployment's code in this process. The router bounds its requests.
type Replica struct {
	component *identity.Component
	log       accesslog.Log
	tracer    *spans.Tracer
	scope     *scope.Replica
	holds     atomic.Pointer[[]string] // models; nil for none
	cut       chan struct{}            // closed when its requests are to be cut off

	// values are in the order of their constructors. They are complete before the
	// replica takes a call, and do not change then.
	values []value
}

// value is a replica's value of a constructor.
type value struct {
	Value

	key any
}

func newReplica(s *Server, c *Config, limit int, r *router) *Replica {
	component := s.Tracer.NewReplica(c.App, c.Name)
	replica := &Replica{
		component: component,
		log:       s.Log,
		tracer:    s.Tracer,
		cut:       make(chan struct{}),
		scope: &scope.Replica{
			App:        c.App,
			Deployment: c.Name,
			UniqueID:   component.UniqueID(),
			Component:  component,
			MaxOngoing: limit,
			Server:     s.Counter,
			Tracing:    s.Tracer,
			Log:        s.Log.Logger,
			Metrics:    s.Metrics.Replica(c.App, c.Name, component.UniqueID()),
		},
	}
	replica.scope.Runner = replica
	replica.scope.Models = func(ids []string) {
		ids = slices.Clone(ids)
		replica.holds.Store(&ids)
		r.announce(replica)
	}
	return replica
}

// running is a call while a replica runs it.
type running struct {
	user    context.Context // with the replica span
	replica *Replica
	call    Call
	request identity.Request
	scope   scope.Call // in the context of the user's code
}

// run runs the user's code for c. It works in deferred calls, because user code may end
// its goroutine with runtime.Goexit.
func (r *Replica) run(ctx context.Context, c Call, model string) (err error) {
	u := &running{replica: r, call: c}
	u.scope.Replica, u.scope.Task = r.scope, c
	u.request.App, u.request.Deployment = r.scope.App, r.scope.Deployment
	u.request.ModelID, u.request.Component = model, r.component // StartReplica sets the rest
	began := time.Now()
	start := c.Start()
	start.Request = &u.request
	ctx, span := r.tracer.StartReplica(scope.ContextWithCall(ctx, &u.scope), start)
	u.user = ctx
	r.scope.Metrics.Began()

	err = cause.ErrGoexit
	defer func() {
		u.scope.End()
		var result spans.ReplicaResult
		result, err = c.End(u.user, err)
		span.EndReplica(result)
		took := time.Since(began)
		r.scope.Metrics.Done(u.request.Route, took, err != nil, span.Context())
		if start.Protocol == spans.Handle {
			u.logCall(start.CallMethod, took, err)
		}
	}()
	err = u.invoke()
	return err
}

// invoke runs the user's code and returns its error.
func (u *running) invoke() (err error) {
	defer func() {
		if in, is := u.call.(CallerCode); is && in.InCaller() {
			return // the panic goes on to the caller, with its stack
		}
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler // the handler wants its response cut
		default:
			p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
			u.logPanic(p)
			err = p
		}
	}()
	return scope.Touch(u.call.Invoke(u.user))
}

func (u *running) logPanic(p *tracing.PanicError) {
	u.replica.log.LogAttrs(u.user, slog.LevelError, "handler panicked",
		slog.String(tracing.LogApp, u.request.App),
		slog.String(tracing.LogDeployment, u.request.Deployment),
		slog.String(tracing.LogReplica, u.replica.uniqueID()),
		slog.String(tracing.LogRequestID, u.request.ID),
		slog.Any("panic", p.Value),
		slog.String("stack", string(p.Stack)))
}

// logCall writes the line of a call by handle, in Ray's words. Its level is debug: one
// request may make many calls, each call's error goes to its caller, and a panic has a
// line of its own.
func (u *running) logCall(method string, took time.Duration, err error) {
	if !u.replica.log.Wants(u.user, slog.LevelDebug) {
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
	u.replica.log.Write(u.user, slog.LevelDebug, "call", accesslog.Entry{
		Method: "CALL", Code: code, Took: took, RequestID: u.request.ID,
		Route: u.request.Route, CallMethod: cmp.Or(method, semconv.DefaultCallMethod),
		App: u.request.App, Deployment: u.request.Deployment, Replica: u.replica.uniqueID(),
		Err: err,
	})
}

// LocalValue returns the value that the constructor with key has made for the replica in
// which user code with the context ctx runs. It is false if there is none.
func LocalValue(ctx context.Context, key any) (local any, ok bool) {
	c := scope.FromContext(ctx)
	if c == nil {
		return nil, false
	}
	r, _ := c.Replica.Runner.(*Replica)
	if r == nil {
		return nil, false
	}
	for _, v := range r.values {
		if v.key == key {
			return v.Local, true
		}
	}
	return nil, false
}

func (r *Replica) uniqueID() string { return r.component.UniqueID() }

// models returns the ids of the multiplexed models that the replica holds or loads. The
// caller must not change them.
func (r *Replica) models() []string {
	if ids := r.holds.Load(); ids != nil {
		return *ids
	}
	return nil
}
