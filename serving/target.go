package serving

import (
	"context"
	"log/slog"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// target is a deployment as its callers reach it: the HTTP proxy and handles.
// It never changes once its server is built.
type target struct {
	app, deployment string
	router          *router
	pressure        backpressure
	metrics         *metrics.Router
	tracing         *spans.Tracer
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
func (t *target) assign(ctx context.Context, s spans.RouterStart) (routed context.Context, a assignment, err error) {
	s.App, s.Deployment = t.app, t.deployment
	routed, span := t.tracing.StartRouter(ctx, s)
	var m *member
	var wait time.Duration
	if err = overBefore(ctx, s.Protocol); err == nil {
		m, wait, err = t.router.acquire(ctx, s.ModelID)
	}
	result := spans.RouterResult{QueueWait: wait}
	if err != nil {
		t.pressure.tell(err)
		switch result.Outcome, result.Err = spans.RouterCanceled, ctx.Err(); {
		case isCancellation(err):
			result.Err = spanError(err)
		case isRefusal(err):
			result.Outcome, result.Err = spans.RouterRefused, err
		}
	}
	span.EndRouter(result)
	t.metrics.Done(metrics.Choice{
		Route:    routeOf(ctx),
		ByHandle: s.Protocol == spans.Handle,
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
func overBefore(ctx context.Context, p spans.Protocol) error {
	cause := context.Cause(ctx)
	if p != spans.HTTP && p != spans.WebSocket || isCancellation(cause) {
		return cause
	}
	return nil
}

// routeOf is the route of the request that ctx belongs to; empty outside of one.
func routeOf(ctx context.Context) string {
	if r := identity.RequestFromContext(ctx); r != nil {
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
