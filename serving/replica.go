package serving

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/tracing"
)

// ReplicaID names one replica of one deployment of one app, for good.
type ReplicaID struct {
	App, Deployment string
	UniqueID        string // eight lower-case letters and digits, drawn at start
}

// String gives "app#deployment#uniqueid", the value of serve.replica_id.
func (id ReplicaID) String() string { return id.App + "#" + id.Deployment + "#" + id.UniqueID }

// ReplicaInfo names the replica in which user code runs.
type ReplicaInfo struct {
	App        string
	Deployment string
	ReplicaID  ReplicaID
}

// ReplicaContext says which replica runs the handler or function whose context
// is ctx, or one that ctx is derived from. It answers false outside of both. It
// is Ray's get_replica_context.
func ReplicaContext(ctx context.Context) (ReplicaInfo, bool) {
	r := replicaIn(ctx)
	if r == nil {
		return ReplicaInfo{}, false
	}
	return r.info, true
}

// ModelID is the id of the multiplexed model that the call with the context ctx
// is for; empty for none, and outside of a call. It is Ray's
// get_multiplexed_model_id.
func ModelID(ctx context.Context) string {
	if r := identity.RequestFromContext(ctx); r != nil {
		return r.ModelID
	}
	return ""
}

// call is what a replica is asked to do: what differs between HTTP requests,
// calls by handle and other protocols. One replica runs it, once: it calls
// start, invoke and end in that order, on one goroutine.
type call interface {
	// running returns memory for the replica's part of the call.
	running() *running
	// start tells what is called, for the replica span. Request is the
	// replica's to fill.
	start() spans.ReplicaStart
	// modelID is the multiplexed model that it is for; empty for none.
	modelID() string
	// invoke runs the user's code under ctx and gives what it failed with.
	// Panics and runtime.Goexit are the replica's affair.
	invoke(ctx context.Context, r *replica) error
	// end is called when the user's code has returned with err: errGoexit and a
	// *PanicError included. It completes the response, and gives what the span
	// shows and what really ended the call.
	end(ctx context.Context, err error) (spans.ReplicaResult, error)
}

// running is a call while a replica runs it. It is a part of the call.
type running struct {
	user    context.Context // with the replica span
	replica *replica
	call    call
	request identity.Request
	scope   scope.Call // in the context of the user's code

	// inCaller: the goroutine is in the loop body of whoever ranges over the
	// call's stream. A panic there, or a Goexit, is none of the callee's.
	inCaller bool
}

// replica runs a deployment's code in this process. The router keeps it within
// its limit.
type replica struct {
	info       ReplicaInfo
	deployment *Deployment
	max        atomic.Int64 // max_ongoing_requests
	handler    http.Handler // nil if the deployment has none
	component  *identity.Component
	tracing    *spans.Tracer
	log        *slog.Logger
	access     accessLog
	scope      *scope.Replica
	stopped    atomic.Bool
	holds      atomic.Pointer[[]string] // models; nil for none
	killed     chan struct{}            // closed when its requests are to be cut off

	// values are those of PerReplica, in their order. They are complete before the
	// replica takes a call, and do not change then.
	values []any
}

var _ runner = (*replica)(nil)

func newReplica(app string, d *Deployment, s *Server, router *router, tp *spans.Tracer) *replica {
	component := tp.NewReplica(app, d.name)
	counts := s.metrics.Replica(app, d.name, component.UniqueID())
	r := &replica{
		info: ReplicaInfo{
			App:        app,
			Deployment: d.name,
			ReplicaID:  ReplicaID{App: app, Deployment: d.name, UniqueID: component.UniqueID()},
		},
		deployment: d,
		killed:     make(chan struct{}),
		handler:    d.handler,
		component:  component,
		tracing:    tp,
		log:        s.log,
		access:     s.access(),
		scope: &scope.Replica{
			App:        app,
			Deployment: d.name,
			UniqueID:   component.UniqueID(),
			Component:  component,
			Server:     s.work,
			Tracing:    tp,
			Log:        s.log,
			Metrics:    counts,
		},
	}
	r.scope.Runner = r
	r.scope.Models = func(ids []string) {
		ids = slices.Clone(ids)
		r.holds.Store(&ids)
		router.announce(r)
	}
	return r
}

func (r *replica) id() ReplicaID { return r.info.ReplicaID }
func (r *replica) limit() int    { return int(r.max.Load()) }
func (r *replica) accept() bool  { return !r.stopped.Load() }

func (r *replica) cut() <-chan struct{} { return r.killed }

func (r *replica) models() []string {
	if ids := r.holds.Load(); ids != nil {
		return *ids
	}
	return nil
}

// run implements [runner]. It is all done in deferred calls, because user code
// may end its goroutine by runtime.Goexit.
func (r *replica) run(ctx context.Context, c call) (err error) {
	u := c.running()
	u.replica, u.call = r, c
	u.scope.Replica, u.scope.Task = r.scope, c
	u.request.App, u.request.Deployment = r.info.App, r.info.Deployment
	u.request.ModelID, u.request.Component = c.modelID(), r.component
	began := time.Now()
	start := c.start()
	start.Request = &u.request
	ctx, span := r.tracing.StartReplica(scope.ContextWithCall(ctx, &u.scope), start)
	u.user = ctx
	r.scope.Metrics.Began()

	err = errGoexit
	defer func() {
		u.scope.End()
		var result spans.ReplicaResult
		result, err = c.end(u.user, err)
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
		if u.inCaller {
			return // the panic goes on to the caller, with its stack
		}
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler // the handler's way to cut its response
		default:
			p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
			u.logPanic(p)
			err = p
		}
	}()
	return scope.Touch(u.call.invoke(u.user, u.replica))
}

func (u *running) logPanic(p *tracing.PanicError) {
	u.replica.log.LogAttrs(u.user, slog.LevelError, "handler panicked",
		slog.String(tracing.LogApp, u.replica.info.App),
		slog.String(tracing.LogDeployment, u.replica.info.Deployment),
		slog.String(tracing.LogReplica, u.replica.info.ReplicaID.UniqueID),
		slog.String(tracing.LogRequestID, u.request.ID),
		slog.Any("panic", p.Value),
		slog.String("stack", string(p.Stack)))
}
