package router

import (
	"context"
	"slices"
)

// Accept reserves a free slot for a call of another process. ctx carries the call's
// request, and the router span of its caller as the current span. The caller of Accept
// must Run, Start or Abandon the assignment, once.
//
// Accept never waits: a call waits in the queue of the caller's process. The error is a
// *RefusedError, or a *cause.DeploymentUnavailableError.
func (d *Deployment) Accept(ctx context.Context, model string) (*Assignment, error) {
	m, err := d.router.takeNow(model)
	if err != nil {
		return nil, err
	}
	return newAssignment(ctx, false, d, m, model), nil
}

// Abandon gives back the slot of an assignment that will not run.
func (a *Assignment) Abandon() { a.deployment.router.release(a.member, a.request.ModelID) }

// takeNow takes a free slot, if there is one.
func (r *router) takeNow(model string) (*member, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := r.takeFreeLocked(model, false)
	if m == nil && err == nil {
		err = &RefusedError{Why: Full}
	}
	return m, err
}

// Load is the state that a process reports to the callers of a deployment.
type Load struct {
	// Capacity is the largest number of calls at a time.
	Capacity int
	// Models are the ids of the models that the replicas hold, sorted.
	Models []string
	// Unavailable is the reason for which there will be no replica, or nil.
	Unavailable error
}

// Load returns the load that the deployment's replicas in this process can take.
func (d *Deployment) Load() Load {
	r := d.router
	r.mu.Lock()
	defer r.mu.Unlock()
	l := Load{Unavailable: r.down}
	for _, m := range r.members {
		l.Capacity += m.limit
		l.Models = append(l.Models, m.models...)
	}
	slices.Sort(l.Models)
	l.Models = slices.Compact(l.Models)
	return l
}

// Watch returns a channel that gets a value after a change of the Load. One value may stand
// for several changes. The caller must call stop.
func (d *Deployment) Watch() (changed <-chan struct{}, stop func()) {
	r, c := d.router, make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, c)
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watchers = slices.DeleteFunc(r.watchers, func(w chan struct{}) bool { return w == c })
	}
}

// watchers are the channels of Watch. The router's mu guards them.
type watchers []chan struct{}

// wake sends a value to each channel that is empty.
func (w watchers) wake() {
	for _, c := range w {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Fail makes all calls of the deployment fail with err, including waiting calls, until
// Fail(nil).
func (d *Deployment) Fail(err error) { d.router.fail(err) }
