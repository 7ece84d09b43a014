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

// Deployment is a named set of replicas that run the same code. [NewDeployment] builds it.
// A Deployment does nothing until a [Server] serves its app.
type Deployment struct {
	name      string
	handler   http.Handler         // nil if the deployment takes no HTTP requests
	settings  router.Settings      // as set by the options; an operator's settings may override them
	configErr error                // error of the value for WithUserConfig
	pressure  *backpressure        // from WithBackpressure; nil: the server's setting
	methods   []function           // from AddFunction and AddStream
	locals    []router.Constructor // from PerReplica
	rpcs      grpcproxy.Services   // gRPC services of the deployment
	codec     Codec                // for calls between processes
	errors    callwire.Errors      // from WithErrors and WithErrorType

	built     atomic.Pointer[router.Deployment] // set once by New, which builds a server; nil before
	elsewhere atomic.Bool                       // set by New if the server neither runs nor calls the deployment
}

// DeploymentOption changes a [Deployment] while it is built.
type DeploymentOption struct{ apply func(*Deployment) }

// WithReplicas sets the number of replicas that run the deployment's code, 1 or more. The
// default is 1.
func WithReplicas(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.Replicas = n }}
}

// WithMaxOngoingRequests sets the largest number of requests that one replica runs at a
// time, 1 or more. The default is 5. Further requests wait in the order of their arrival.
func WithMaxOngoingRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.MaxOngoing = n }}
}

// WithMaxQueuedRequests sets the largest number of requests that may wait for a replica. A
// further request fails at once with a [QueueFullError], and its client gets the response of
// [WithBackpressure]. With 0, no request may wait. -1, the default, means any number.
func WithMaxQueuedRequests(n int) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.MaxQueued = n }}
}

// WithUserConfig sets the user config, which each replica passes to its values of type
// [Reconfigurer]. config is any value that can be encoded as JSON. Nil, the default, means
// no config. [Server.Reconfigure] changes the config. An operator's user config in
// [DeploymentConfig] takes precedence.
func WithUserConfig(config any) DeploymentOption {
	return DeploymentOption{func(d *Deployment) {
		c, err := newUserConfig(config)
		d.settings.Config, d.configErr = c.json, err
	}}
}

// WithHealthCheck sets the pause between two checks of a [HealthChecker], period, and the
// longest duration of a check, timeout. The defaults are 10 s and 30 s. Both must be above
// zero. A replica that fails three checks in a row takes no more calls, and another replica
// replaces it.
func WithHealthCheck(period, timeout time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.HealthPeriod, d.settings.HealthTimeout = period, timeout }}
}

// WithGracefulShutdown sets the times for the stop of a replica that is replaced or no
// longer wanted. Both must be above zero.
//
// timeout is the time for the replica's last calls and then for the stop of its values,
// together. The default is 20 s. After the timeout, the requests of clients are cut off. The
// values have at least one second to stop. A shutdown of the server may leave less time, see
// [Server.Shutdown].
//
// waitLoop is the time after which the log reports that the replica waits for its calls. The
// default is 2 s. In Ray Serve it is the interval at which a replica checks for calls. Here
// a replica notices the end of its last call at once.
func WithGracefulShutdown(waitLoop, timeout time.Duration) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.settings.WaitLoop, d.settings.StopTimeout = waitLoop, timeout }}
}

// NewDeployment builds a deployment. All its replicas call the same handler, which must be
// safe for concurrent use. handler may be nil if the deployment has only functions or gRPC
// services. The name follows the rules of [NewApp].
//
// If handler is a [*http.ServeMux], or has a method RoutePattern(*http.Request) string, the
// pattern that matches a request is the route in its spans. Otherwise the app's route prefix
// is the route. RoutePattern is called before the first span starts. It must not block, and
// returns "" if no pattern matches.
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

// replicas returns the replicas of the deployment. It must not be called before New has
// built a server for the deployment.
func (d *Deployment) replicas() router.Replicas { return d.built.Load().Replicas }

// noServer returns the error of a call of a deployment that no server of this process has.
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
