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
	Changed func() // called after changes of replicas, without a lock; nil for none
}

// Notify calls Changed.
func (s *Shared) Notify() {
	if s.Changed != nil {
		s.Changed()
	}
}

// Config describes a deployment.
type Config struct {
	App, Name    string
	Constructors []Constructor // they make the values of each replica
	Settings     Settings
	// QueueFullStatus and RetryAfter are the response to clients if the queue is full. A
	// zero RetryAfter is not sent.
	QueueFullStatus int
	RetryAfter      time.Duration
}

// Deployment is a deployment in the view of its callers, the proxies and handles. It
// never changes after New, and is safe for concurrent use.
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
	// Start, Stop and Wait are documented at ReplicaSet.
	Start()
	Stop()
	Wait(ctx, late context.Context) error
	// Status returns the state. It does not block.
	Status() DeploymentStatus
	// Unready returns the reason for which the deployment takes no calls, or "".
	Unready() string
	// Declare and Reconfigure are documented at Changes.
	Declare(ctx context.Context, next Settings) error
	Reconfigure(ctx context.Context, config string) error
}

// New returns a deployment of the server. It starts no replicas.
func New(s *Shared, c Config) *Deployment {
	d := newDeployment(s, c)
	d.Replicas = newReplicaSet(s, c, d.router)
	return d
}

// NewRemote returns a deployment that other processes run. The caller sets Replicas,
// which add the processes by Join.
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

// AdmitCall counts a call by handle with the context ctx; the caller must call done when
// the call is over. It fails as [inflight.Counter.AdmitCall] does.
func (d *Deployment) AdmitCall(ctx context.Context) (done func(), err error) {
	counter := d.shared.Counter
	err = counter.AdmitCall(false)
	if err != nil { // the origin of the call matters only in this case
		if c := scope.FromContext(ctx); c != nil && c.Replica.Server == counter && !c.Ended() {
			err = counter.AdmitCall(true)
		}
	}
	return counter.HandlerDone, err
}

// Assign reserves a slot of a replica for a call, and waits for one if necessary. The
// caller must Run or Start the assignment, once. Assign starts and ends the router span.
// It sets App and Deployment of s.
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
	d.routed(ctx, s.Protocol, span, wait, err)
	if err != nil {
		return nil, err
	}
	return newAssignment(routed, !span.Recording(), d, m, s.ModelID), nil
}

// routed ends the router span of a call and counts the call. A nil err means that the call
// has reserved a slot of a replica.
func (d *Deployment) routed(ctx context.Context, p spans.Protocol, span spans.Span, wait time.Duration, err error) {
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

// endBefore returns the reason for which a call ends before a replica is chosen, or nil.
// A client by HTTP that has closed only its sending side may still read an answer. So its
// request goes on, and ends only if it must wait for a slot.
func endBefore(ctx context.Context, p spans.Protocol) error {
	why := context.Cause(ctx)
	if p != spans.HTTP && p != spans.WebSocket || cause.IsCancellation(why) {
		return why
	}
	return nil
}

// routeOf returns the route of the request in ctx, or "".
func routeOf(ctx context.Context) string {
	if r := identity.RequestFromContext(ctx); r != nil {
		return r.Route
	}
	return ""
}
