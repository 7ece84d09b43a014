package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Deployment is a named set of replicas that run the same code. Build it with
// [NewDeployment]; it does nothing until a [Server] serves its app.
type Deployment struct {
	name      string
	handler   http.Handler // nil for one that only its app's code calls
	settings  settings
	configErr error         // of the user config
	pressure  *backpressure // nil: as the server says
	methods   []method      // that others call by handle

	// locals construct the values of PerReplica.
	locals []func(context.Context) (any, error)

	rpcs rpcServices // its gRPC services

	target atomic.Pointer[target] // set once, when a server is built for it
}

// DeploymentOption changes a [Deployment] as it is built.
type DeploymentOption struct{ apply func(*Deployment) }

// WithReplicas sets how many replicas run the deployment's code, 1 or more; the default
// is 1.
func WithReplicas(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.replicas = n }}
}

// WithMaxOngoingRequests sets how many requests one replica runs at a time, 1
// or more; the default is 5. Further requests wait, first come, first served.
func WithMaxOngoingRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.maxOngoing = n }}
}

// WithMaxQueuedRequests sets how many requests may wait for a replica; one more
// is answered with status 503 at once (see [QueueFullError] and
// [WithBackpressure]). Zero: none may wait. -1, the default: any number.
func WithMaxQueuedRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.maxQueued = n }}
}

// WithUserConfig sets what the values of [PerReplica] are configured with; see
// [Reconfigurer]. config is any value that has a form in JSON; nil, the default,
// is none. [Server.Reconfigure] changes it, and an operator's goes over it
// ([DeploymentConfig]).
func WithUserConfig(config any) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.config, d.configErr = newUserConfig(config) }}
}

// WithHealthCheck sets how long after a check of [HealthChecker] the next one
// comes, and how long one may take; the defaults are 10 s and 30 s. After three
// in a row that fail, the replica takes no more calls, and a fresh one takes its
// place. A change of them holds from the next check on. Both are above zero.
func WithHealthCheck(period, timeout time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.healthPeriod, d.settings.healthTimeout = period, timeout }}
}

// WithGracefulShutdown sets how a replica stops that is replaced, or is one too
// many: timeout is how long its calls and then its values may take together; the
// default is 20 s. Requests of clients that run on beyond it are cut off; values
// have a second then. A shutdown of the server may leave less time, see
// [Server.Shutdown].
//
// waitLoop is after how long the log says that a replica waits for its calls;
// the default is 2 s. Ray Serve looks that often whether there are any, and
// sleeps in between; here the end of the last is seen at once. Both are above
// zero.
func WithGracefulShutdown(waitLoop, timeout time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.waitLoop, d.settings.stopTimeout = waitLoop, timeout }}
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
		name:     name,
		handler:  handler,
		settings: defaultSettings(),
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
	if ingress && d.handler == nil && !d.rpcs.any() {
		faults = append(faults, errors.New("no handler, and no gRPC service"))
	}
	faults = append(faults, d.rpcs.checkFor(ingress)...)
	if d.target.Load() != nil {
		faults = append(faults, errors.New("a server has it already: build one for each"))
	}
	if !ingress && len(d.methods) == 0 {
		faults = append(faults, errors.New("no functions: nothing can call it; see AddFunction"))
	}
	if err := d.pressure.check(); err != nil {
		faults = append(faults, err)
	}
	if err := d.checkMethods(); err != nil {
		faults = append(faults, err)
	}
	faults = append(faults, d.configErr, d.settings.check(len(d.locals) > 0))
	return errors.Join(faults...)
}
