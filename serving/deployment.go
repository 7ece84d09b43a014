package serving

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
)

// Ray Serve's defaults.
const (
	defaultMaxOngoing = 5
	defaultMaxQueued  = -1
)

// Deployment is a named set of replicas that run the same code. Build it with
// [NewDeployment]; it does nothing until a [Server] serves its app.
type Deployment struct {
	name       string
	handler    http.Handler // nil for one that only its app's code calls
	replicas   int
	maxOngoing int
	maxQueued  int
	methods    []method // that others call by handle

	target atomic.Pointer[target] // set once, when a server is built for it
}

// DeploymentOption changes a [Deployment] as it is built.
type DeploymentOption struct{ apply func(*Deployment) }

// WithReplicas sets how many replicas run the deployment's code, 1 or more; the default
// is 1.
func WithReplicas(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.replicas = n }}
}

// WithMaxOngoingRequests sets how many requests one replica runs at a time, 1
// or more; the default is 5. Further requests wait, first come, first served.
func WithMaxOngoingRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.maxOngoing = n }}
}

// WithMaxQueuedRequests sets how many requests may wait for a replica; one more
// is answered with status 503 at once (see [QueueFullError]). Zero: none may
// wait. -1, the default: any number.
func WithMaxQueuedRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.maxQueued = n }}
}

// NewDeployment builds a deployment. Its replicas share handler, which must be
// safe for concurrent use. It may be nil where nothing but functions is to be
// called. Names are as [NewApp] says.
//
// Where handler is a [*http.ServeMux], or has a method
// RoutePattern(*http.Request) string, the matched pattern names the route in
// spans; else the app's prefix does. RoutePattern is called before the request
// is traced, must not block, and answers "" for no match.
func NewDeployment(name string, handler http.Handler, opts ...DeploymentOption) *Deployment {
	d := &Deployment{
		name:       name,
		handler:    handler,
		replicas:   1,
		maxOngoing: defaultMaxOngoing,
		maxQueued:  defaultMaxQueued,
	}
	for _, o := range opts {
		o.apply(d)
	}
	return d
}

// check returns every fault of the deployment. An ingress answers requests.
func (d *Deployment) check(ingress bool) error {
	var faults []error
	if !validName(d.name) {
		faults = append(faults, fmt.Errorf("name %q: want 1 to %d letters, digits, '-', '_' or '.'", d.name, maxNameLen))
	}
	if ingress && d.handler == nil {
		faults = append(faults, errors.New("no handler"))
	}
	if d.target.Load() != nil {
		faults = append(faults, errors.New("a server has it already: build one for each"))
	}
	if !ingress && len(d.methods) == 0 {
		faults = append(faults, errors.New("no functions: nothing can call it; see AddFunction"))
	}
	if err := d.checkMethods(); err != nil {
		faults = append(faults, err)
	}
	if d.replicas < 1 {
		faults = append(faults, fmt.Errorf("replicas %d: want 1 or more", d.replicas))
	}
	if d.maxOngoing < 1 {
		faults = append(faults, fmt.Errorf("max_ongoing_requests %d: want 1 or more", d.maxOngoing))
	}
	if d.maxQueued < -1 {
		faults = append(faults, fmt.Errorf("max_queued_requests %d: want -1 (no limit), 0 or more", d.maxQueued))
	}
	return errors.Join(faults...)
}
