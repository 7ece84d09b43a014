package serving

import (
	"context"
	"log/slog"
	"time"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// target is a deployment as its callers reach it: the HTTP proxy and handles.
// It never changes once its server is built.
type target struct {
	app, deployment string
	router          *router
	pressure        backpressure
	metrics         *metrics.Router
	tracing         *tracing.Provider
	work            *work
	log             *slog.Logger
}

// assign has the router choose a replica, which has accepted the call when
// assign returns. Whoever gets an assignment runs it, once. It is all in one
// router span, which ends here; routed is the context under it. App and
// deployment of s are the target's to fill.
//
// The error is a *QueueFullError, a *DeploymentUnavailableError, or the cause of
// ctx's end.
func (t *target) assign(ctx context.Context, s tracing.RouterStart) (routed context.Context, a assignment, err error) {
	s.App, s.Deployment = t.app, t.deployment
	routed, span := t.tracing.StartRouter(ctx, s)
	var m *member
	var wait time.Duration
	if err = overBefore(ctx, s.Protocol); err == nil {
		m, wait, err = t.router.acquire(ctx, s.ModelID)
	}
	result := tracing.RouterResult{QueueWait: wait}
	if err != nil {
		t.pressure.tell(err)
		result.Outcome, result.Err = tracing.RouterCanceled, endOf(ctx)
		if isRefusal(err) {
			result.Outcome, result.Err = tracing.RouterRefused, err
		}
	}
	span.End(result)
	t.metrics.Done(metrics.Choice{
		Route:    routeOf(ctx),
		ByHandle: s.Protocol == tracing.Handle,
		Assigned: err == nil,
		Wait:     wait,
		Span:     span.Context(),
	})
	return routed, assignment{t, m}, err
}

// assignment is a place in a replica that has accepted a call.
type assignment struct {
	target *target
	member *member
}

// overBefore returns why a call is over before a replica is chosen; nil if it is not. A
// client by HTTP that has closed its side only may still read an answer, so it gets one
// if it need not wait for a slot.
func overBefore(ctx context.Context, p tracing.Protocol) error {
	cause := context.Cause(ctx)
	if p != tracing.HTTP && p != tracing.WebSocket || isCancellation(cause) {
		return cause
	}
	return nil
}

// routeOf is the route of the request that ctx belongs to; empty outside of one.
func routeOf(ctx context.Context) string {
	if r := tracing.RequestFromContext(ctx); r != nil {
		return r.Route
	}
	return ""
}

// run has the replica run c under ctx, which is that of assign. It returns when
// the user's code has really returned; the slot is free then.
func (a assignment) run(ctx context.Context, c call) error {
	// Deferred, because user code may end the goroutine by runtime.Goexit.
	defer a.target.router.release(a.member, c.modelID())
	return a.member.runner.run(ctx, c)
}

// cut is closed when the replica can wait for the call no longer.
func (a assignment) cut() <-chan struct{} { return a.member.runner.cut() }

// uniqueID is the replica's; empty for none.
func (a assignment) uniqueID() string {
	if a.member == nil {
		return ""
	}
	return a.member.runner.id().UniqueID
}
