package serving

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/spelling"
)

// AppConfig is what an operator says of an app, over what its code says; see
// [Config.Apps] and [Server.Apply].
type AppConfig struct {
	// Name is the app's. Empty: the only app of the program, or the one that is
	// called "default".
	Name string
	// RoutePrefix goes over [WithRoutePrefix]. It is read at the start only.
	// Empty: what the code says.
	RoutePrefix string
	// Deployments are those of the app that there is something to say of.
	Deployments []DeploymentConfig
	// From says where this was said, such as "serve.yaml:12:5", for errors.
	// Empty: nowhere.
	From string
}

// DeploymentConfig is what an operator says of a deployment. A field that is nil
// leaves what the code says.
type DeploymentConfig struct {
	Name string
	// The counts, as the options of [NewDeployment] have them.
	NumReplicas, MaxOngoingRequests, MaxQueuedRequests *int
	// UserConfig goes over that of [WithUserConfig], as a whole. It is any value
	// that has a form in JSON; a json.RawMessage is one.
	UserConfig any
	// The times, as [WithGracefulShutdown] and [WithHealthCheck] have them.
	GracefulShutdownWaitLoop, GracefulShutdownTimeout, HealthCheckPeriod, HealthCheckTimeout *time.Duration
	// From is as that of an AppConfig.
	From string
}

// settings are what holds of a deployment.
type settings struct {
	replicas, maxOngoing, maxQueued int
	config                          UserConfig
	healthPeriod, healthTimeout     time.Duration
	waitLoop, stopTimeout           time.Duration
}

// Ray Serve's defaults.
const (
	defaultMaxOngoing    = 5
	defaultMaxQueued     = -1
	defaultHealthPeriod  = 10 * time.Second
	defaultHealthTimeout = 30 * time.Second
	defaultWaitLoop      = 2 * time.Second
	defaultStopTimeout   = 20 * time.Second
)

func defaultSettings() settings {
	return settings{
		replicas:      1,
		maxOngoing:    defaultMaxOngoing,
		maxQueued:     defaultMaxQueued,
		healthPeriod:  defaultHealthPeriod,
		healthTimeout: defaultHealthTimeout,
		waitLoop:      defaultWaitLoop,
		stopTimeout:   defaultStopTimeout,
	}
}

// check returns every fault of the settings, for a deployment that has something
// to give a user config to, or has not.
func (w settings) check(takesConfig bool) error {
	var faults []error
	for _, n := range []struct {
		name         string
		value, least int
		want         string
	}{
		{"replicas", w.replicas, 1, "1 or more"},
		{"max_ongoing_requests", w.maxOngoing, 1, "1 or more"},
		{"max_queued_requests", w.maxQueued, -1, "-1 (no limit), 0 or more"},
	} {
		if n.value < n.least {
			faults = append(faults, fmt.Errorf("%s %d: want %s", n.name, n.value, n.want))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"health check period", w.healthPeriod},
		{"health check timeout", w.healthTimeout},
		{"graceful shutdown wait loop", w.waitLoop},
		{"graceful shutdown timeout", w.stopTimeout},
	} {
		if d.value <= 0 {
			faults = append(faults, fmt.Errorf("%s %v: want more than zero", d.name, d.value))
		}
	}
	if !takesConfig && !w.config.IsZero() {
		faults = append(faults, errors.New("it has a user config, and no PerReplica whose value could take it"))
	}
	return errors.Join(faults...)
}

// with gives the settings with what c says over them.
func (w settings) with(c DeploymentConfig) (settings, error) {
	set(&w.replicas, c.NumReplicas)
	set(&w.maxOngoing, c.MaxOngoingRequests)
	set(&w.maxQueued, c.MaxQueuedRequests)
	set(&w.waitLoop, c.GracefulShutdownWaitLoop)
	set(&w.stopTimeout, c.GracefulShutdownTimeout)
	set(&w.healthPeriod, c.HealthCheckPeriod)
	set(&w.healthTimeout, c.HealthCheckTimeout)
	if c.UserConfig == nil {
		return w, nil
	}
	config, err := newUserConfig(c.UserConfig)
	w.config = config
	return w, err
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// change gives w with what differs between before and after.
func (w settings) change(before, after settings) settings {
	pick(&w.replicas, before.replicas, after.replicas)
	pick(&w.maxOngoing, before.maxOngoing, after.maxOngoing)
	pick(&w.maxQueued, before.maxQueued, after.maxQueued)
	pick(&w.config, before.config, after.config)
	pick(&w.healthPeriod, before.healthPeriod, after.healthPeriod)
	pick(&w.healthTimeout, before.healthTimeout, after.healthTimeout)
	pick(&w.waitLoop, before.waitLoop, after.waitLoop)
	pick(&w.stopTimeout, before.stopTimeout, after.stopTimeout)
	return w
}

func pick[T comparable](to *T, before, after T) {
	if before != after {
		*to = after
	}
}

// declare gives what code and configs say of each deployment of the apps, and of
// each app's prefix. The error has every fault, with its place.
func declare(apps []*App, configs []AppConfig) (map[*Deployment]settings, map[*App]string, error) {
	said, prefixes := map[*Deployment]settings{}, map[*App]string{}
	for _, a := range apps {
		if a == nil {
			continue // checkApps says so, here and below
		}
		prefixes[a] = a.prefix
		for _, d := range a.deployments() {
			if d != nil {
				said[d] = d.settings
			}
		}
	}
	var faults []error
	seen := map[any]string{}
	for _, c := range configs {
		fail := func(from, format string, args ...any) {
			faults = append(faults, placed(from, fmt.Errorf(format, args...)))
		}
		a, err := findApp(apps, c.Name)
		if err != nil {
			faults = append(faults, placed(c.From, err))
			continue
		}
		if other, twice := seen[a]; twice {
			fail(c.From, "app %q: there is something of it already%s", a.name, other)
		}
		seen[a] = at(c.From)
		if c.RoutePrefix != "" {
			prefixes[a] = c.RoutePrefix
			if !validPrefix(c.RoutePrefix) {
				fail(c.From, "app %q: %w", a.name, prefixFault(c.RoutePrefix))
			}
		}
		for _, dc := range c.Deployments {
			d, err := a.find(dc.Name)
			if err != nil {
				faults = append(faults, placed(dc.From, err))
				continue
			}
			if other, twice := seen[d]; twice {
				fail(dc.From, "app %q: there is something of deployment %q already%s", a.name, d.name, other)
			}
			seen[d] = at(dc.From)
			s, err := d.settings.with(dc)
			said[d] = s
			if err := errors.Join(err, s.check(len(d.locals) > 0)); err != nil {
				fail(dc.From, "app %q: deployment %q: %w", a.name, d.name, err)
			}
		}
	}
	return said, prefixes, errors.Join(faults...)
}

func placed(from string, err error) error {
	if from == "" {
		return err
	}
	return fmt.Errorf("%s: %w", from, err)
}

func at(from string) string {
	if from == "" {
		return ""
	}
	return " at " + from
}

// findApp gives the app that a config is for.
func findApp(apps []*App, name string) (*App, error) {
	if name == "" {
		if len(apps) == 1 && apps[0] != nil {
			return apps[0], nil
		}
		name = defaultAppName
	}
	names := make([]string, len(apps))
	for i, a := range apps {
		switch {
		case a == nil:
		case a.name == name:
			return a, nil
		default:
			names[i] = a.name
		}
	}
	return nil, fmt.Errorf("there is no app %q%s", name, meant(name, names))
}

// defaultAppName is what Ray calls an app without a name.
const defaultAppName = "default"

// find gives the deployment of the app with a name.
func (a *App) find(name string) (*Deployment, error) {
	all := a.deployments()
	names := make([]string, len(all))
	for i, d := range all {
		switch {
		case d == nil:
		case d.name == name:
			return d, nil
		default:
			names[i] = d.name
		}
	}
	return nil, fmt.Errorf("app %q has no deployment %q%s", a.name, name, meant(name, names))
}

// meant ends a message about a name that is not among those that there are.
func meant(name string, names []string) string {
	if hint := spelling.Nearest(name, names); hint != "" {
		return "; did you mean " + hint + "?"
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return "; want one of " + strings.Join(names, ", ")
}
