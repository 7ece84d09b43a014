package router

import (
	"context"
	"time"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// Shared has the parts of a server that its proxies and deployments share. It does not
// change once a deployment is started.
type Shared struct {
	Base    context.Context // ends, with a cause, when requests are cut off
	Counter *inflight.Counter
	Workers *inflight.Workers
	Metrics *metrics.Set
	Tracer  *spans.Tracer
	Log     accesslog.Log
	Changed func() // called without a lock after a replica has changed its state; may be nil
}

// Notify calls Changed, if there is one.
func (s *Shared) Notify() {
	if s.Changed != nil {
		s.Changed()
	}
}

// Config describes a deployment for New.
type Config struct {
	App, Name    string
	Constructors []Constructor // make the values of each replica, in this order
	Settings     Settings
	// QueueFullStatus and RetryAfter are the status and the header Retry-After of the response
	// to a client if the queue is full. If RetryAfter is zero, the header is not sent.
	QueueFullStatus int
	RetryAfter      time.Duration
}

// Deployment is a deployment as the proxies and handles see it, which call it. Its fields do
// not change after New, and its methods are safe for concurrent use.
type Deployment struct {
	App, Name string
	Replicas  Replicas
	// Remote reports whether other processes run the deployment. If so, calls use Forward,
	// otherwise Assign.
	Remote bool

	shared  *Shared
	router  *router
	metrics *metrics.Router
}

// Replicas are the replicas of a deployment, either a [ReplicaSet] in this process, or
// other processes. The methods are safe for concurrent use.
type Replicas interface {
	// The methods Start, Stop and Wait of ReplicaSet document the next three methods.
	Start()
	Stop()
	Wait(ctx, late context.Context) error
	// Status returns the status of the deployment. It does not block.
	Status() DeploymentStatus
	// Unready returns the reason for which no replica takes calls, or "" if a replica does.
	Unready() string
	// The methods Declare and Reconfigure of Changes document the next two methods.
	Declare(ctx context.Context, next Settings) error
	Reconfigure(ctx context.Context, config string) error
}

// New returns a deployment with replicas in this process. It starts no replicas.
func New(s *Shared, c Config) *Deployment {
	d := newDeployment(s, c)
	d.Replicas = newReplicaSet(s, c, d.router)
	return d
}

// NewRemote returns a deployment with replicas in other processes. The caller must set
// Replicas to a value that calls Join for each of these processes.
func NewRemote(s *Shared, c Config) *Deployment {
	d := newDeployment(s, c)
	d.Remote = true
	return d
}

func newDeployment(s *Shared, c Config) *Deployment {
	r := newRouter(s.Base, c.Settings.MaxOngoing, c.Settings.MaxQueued, cause.QueueFullError{
		Deployment: c.Name,
		StatusCode: c.QueueFullStatus,
		RetryAfter: c.RetryAfter,
	})
	return &Deployment{
		App:     c.App,
		Name:    c.Name,
		shared:  s,
		router:  r,
		metrics: s.Metrics.Router(c.App, c.Name, r.load),
	}
}

// Assign reserves a slot of a replica for a call. If no slot is free, it waits for one. The
// caller must Run or Start the assignment, once. Assign starts and ends the router span. It
// overwrites App and Deployment of s.
//
// The error is a *cause.QueueFullError, a *cause.DeploymentUnavailableError, or the
// cause of ctx's end.
func (d *Deployment) Assign(ctx context.Context, s spans.RouterStart) (*Assignment, error) {
	s.App, s.Deployment = d.App, d.Name
	routed, span := d.shared.Tracer.StartRouter(ctx, s)
	var m *member
	var wait time.Duration
	err := endBefore(ctx, s.Protocol)
	if err == nil {
		m, wait, err = d.router.acquire(ctx, s.ModelID)
	}
	d.endRouting(ctx, s.Protocol, span, wait, err)
	if err != nil {
		return nil, err
	}
	return newAssignment(routed, !span.Recording(), d, m, s.ModelID), nil
}

// endBefore returns the reason for which a call ends before a replica is chosen, or nil. A
// call ends if its context has ended. But the context of an HTTP request may have ended
// because the client has closed only the half on which it sends. This client may still read
// an answer, so its request ends only if it must wait for a slot.
func endBefore(ctx context.Context, p spans.Protocol) error {
	why := context.Cause(ctx)
	if p != spans.HTTP && p != spans.WebSocket || cause.IsCancellation(why) {
		return why
	}
	return nil
}

// endRouting ends the router span of a call and counts the call in the metrics. If err is nil,
// the call has got a slot of a replica, after it has waited for the time wait.
func (d *Deployment) endRouting(ctx context.Context, p spans.Protocol, span spans.Span, wait time.Duration, err error) {
	span.EndRouter(resultOf(ctx, wait, err))
	d.metrics.Done(metrics.Choice{
		Route:    routeOf(ctx),
		ByHandle: p == spans.Handle,
		Assigned: err == nil,
		Wait:     wait,
		Span:     span.Context(),
	})
}

// resultOf returns the result of the choice of a replica, for the router span.
func resultOf(ctx context.Context, wait time.Duration, err error) spans.RouterResult {
	r := spans.RouterResult{QueueWait: wait}
	switch {
	case err == nil:
		r.Outcome = spans.RouterAccepted
	case cause.IsCancellation(err):
		r.Outcome, r.Err = spans.RouterCanceled, cause.ForSpan(err)
	case cause.IsRefusal(err):
		r.Outcome, r.Err = spans.RouterRefused, err
	default:
		r.Outcome, r.Err = spans.RouterCanceled, ctx.Err()
	}
	return r
}

// routeOf returns the route of the request in ctx, or "".
func routeOf(ctx context.Context) string {
	if r := identity.RequestFromContext(ctx); r != nil {
		return r.Route
	}
	return ""
}

// AdmitCall counts a call by handle with the context ctx as running. The caller must call
// done when the call has ended. AdmitCall returns an error if the server shuts down, unless
// ctx belongs to a request that still runs.
func (d *Deployment) AdmitCall(ctx context.Context) (done func(), err error) {
	counter := d.shared.Counter
	err = counter.AdmitCall(false)
	if err != nil { // the server shuts down, and admits only a call that a running request makes
		if c := scope.FromContext(ctx); c != nil && c.Replica.Server == counter && !c.Ended() {
			err = counter.AdmitCall(true)
		}
	}
	return counter.HandlerDone, err
}
