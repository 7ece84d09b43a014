package router

import (
	"context"
	"slices"
)

// Accept takes a free slot for a call that another process makes. ctx must carry the Request
// of the call. Its current span must be the router span of the other process. The caller of
// Accept must Run, Start or Abandon the assignment, once.
//
// Accept never waits, because a call waits in the queue of the process that makes it. The
// error is a *RefusedError, or a *cause.DeploymentUnavailableError.
func (d *Deployment) Accept(ctx context.Context, model string) (*Assignment, error) {
	m, err := d.router.takeNow(model)
	if err != nil {
		return nil, err
	}
	return newAssignment(ctx, false, d, m, model), nil
}

// Abandon frees the slot of an assignment that will not run.
func (a *Assignment) Abandon() { a.deployment.router.release(a.member, a.request.ModelID) }

// takeNow takes a free slot for a call that uses model, which may be "". If there is none,
// the error is a *RefusedError.
func (r *router) takeNow(model string) (*member, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := r.takeFreeLocked(model, false)
	if m == nil && err == nil {
		err = &RefusedError{Why: Full}
	}
	return m, err
}

// Load describes the replicas of a deployment in this process. The process reports it to the
// processes that call the deployment.
type Load struct {
	// Capacity is the largest number of calls that the replicas run at a time.
	Capacity int
	// Models are the ids of the models that the replicas hold, sorted.
	Models []string
	// Unavailable is the reason for which no replica will start, or nil.
	Unavailable error
}

// Load returns the current Load of the deployment.
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

// Watch returns a channel that receives a value after each change of the Load. One value may
// stand for several changes. The caller must call stop.
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

// watchers are the channels that Watch has returned. The router's mu guards them.
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

// Fail makes all calls of the deployment fail with err, including waiting calls. Fail(nil)
// ends this state.
func (d *Deployment) Fail(err error) { d.router.fail(err) }
