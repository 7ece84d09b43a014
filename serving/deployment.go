package serving

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/callwire"
	"github.com/servetrace/servetrace/serving/internal/grpcproxy"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// Deployment is a named set of replicas that run the same code. Build it with
// [NewDeployment]; it does nothing until a [Server] serves its app.
type Deployment struct {
	name      string
	handler   http.Handler // nil if only functions of the deployment are called
	settings  router.Settings
	configErr error                // error of the user config
	pressure  *backpressure        // nil: the server's setting
	methods   []function           // functions that are called by handle
	locals    []router.Constructor // from calls of PerReplica
	rpcs      grpcproxy.Services   // gRPC services of the deployment
	codec     Codec
	errors    callwire.Errors // errors that keep their identity in other processes

	built     atomic.Pointer[router.Deployment] // set once, when New builds the server of the deployment
	elsewhere atomic.Bool                       // the server neither runs nor calls the deployment
}

// DeploymentOption changes a [Deployment] while it is built.
type DeploymentOption struct{ apply func(*Deployment) }

// WithReplicas sets the number of replicas that run the deployment's code, 1 or more. The
// default is 1.
func WithReplicas(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.Replicas = n }}
}

// WithMaxOngoingRequests sets the number of requests that one replica runs at a time, 1 or
// more. The default is 5. Further requests wait, first come, first served.
func WithMaxOngoingRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.MaxOngoing = n }}
}

// WithMaxQueuedRequests sets the number of requests that may wait for a replica. A further
// request is answered with status 503 at once (see [QueueFullError] and
// [WithBackpressure]). Zero: no request may wait. -1, the default: any number.
func WithMaxQueuedRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.MaxQueued = n }}
}

// WithUserConfig sets the configuration of the values of [PerReplica]; see
// [Reconfigurer]. config is any value that has a form in JSON; nil, the default, means no
// configuration. [Server.Reconfigure] changes it. An operator's user config
// ([DeploymentConfig]) takes precedence.
func WithUserConfig(config any) DeploymentOption {
	return DeploymentOption{func(d *Deployment) {
		c, err := newUserConfig(config)
		d.settings.Config, d.configErr = c.json, err
	}}
}

// WithHealthCheck sets the pause between two checks of a [HealthChecker], and the longest
// duration of a check. The defaults are 10 s and 30 s, and both must be above zero. After
// three failures in a row, the replica takes no more calls, and a new replica replaces it.
// A change applies from the next check on.
func WithHealthCheck(period, timeout time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.HealthPeriod, d.settings.HealthTimeout = period, timeout }}
}

// WithGracefulShutdown sets the times for the stop of a replica that is replaced or no
// longer wanted. timeout is the time that its calls, and then the stop of its values, may
// take together. The default is 20 s. After the timeout, requests of clients are cut off.
// The values have at least one second to stop. A shutdown of the server may leave less
// time, see [Server.Shutdown].
//
// waitLoop is the time after which a line of the log reports that a replica waits for its
// calls; the default is 2 s. Ray Serve looks for calls at this interval; here the end of
// the last call is seen at once. Both times must be above zero.
func WithGracefulShutdown(waitLoop, timeout time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.WaitLoop, d.settings.StopTimeout = waitLoop, timeout }}
}

// NewDeployment builds a deployment. Its replicas share handler, which must be safe for
// concurrent use. It may be nil if the deployment has only functions or gRPC services.
// Names follow the rules of [NewApp].
//
// If handler is a [*http.ServeMux], or has a method
// RoutePattern(*http.Request) string, the matched pattern names the route in
// spans; else the app's prefix does. RoutePattern is called before the request
// is traced, must not block, and returns "" for no match.
func NewDeployment(name string, handler http.Handler, opts ...DeploymentOption) *Deployment {
	d := &Deployment{
		name:     name,
		handler:  handler,
		settings: defaultSettings(),
		codec:    defaultCodec{},
	}
	for _, o := range opts {
		o.apply(d)
	}
	return d
}

// replicas returns the replicas of the deployment, once a server was built for it.
func (d *Deployment) replicas() router.Replicas { return d.built.Load().Replicas }

// noServer returns an error which explains that no server has the deployment.
func (d *Deployment) noServer() error {
	if d.elsewhere.Load() {
		return fmt.Errorf("this process does not run it: add it to %s, or say in %s where it runs", EnvDeployments, EnvRemote)
	}
	return errNoServer
}

// check returns all faults of the deployment. ingress reports whether the deployment is
// the ingress of its app.
func (d *Deployment) check(ingress bool) error {
	var faults faults
	if !validName(d.name) {
		faults.add("name %q: want 1 to %d letters, digits, '-', '_' or '.'", d.name, maxNameLen)
	}
	if ingress && d.handler == nil && !d.rpcs.Any() {
		faults.add("no handler, and no gRPC service")
	}
	faults = append(faults, d.rpcs.Faults(ingress)...)
	if d.built.Load() != nil {
		faults.add("a server has it already: build one for each")
	}
	if !ingress && len(d.methods) == 0 {
		faults.add("no functions: nothing can call it; see AddFunction")
	}
	faults = append(faults, d.pressure.check(), d.checkMethods(), d.configErr, checkSettings(d.settings, len(d.locals) > 0))
	return errors.Join(faults...)
}
