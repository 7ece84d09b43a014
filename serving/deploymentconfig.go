package serving

import (
	"errors"
	"fmt"
	"time"

	"github.com/servetrace/servetrace/serving/internal/router"
)

// AppConfig holds an operator's settings of an app and its deployments. They take precedence
// over the options in the program; see [Config.Apps] and [Server.Apply].
type AppConfig struct {
	// Name is the name of the app. Empty: the only app of the program, or the app "default".
	Name string
	// RoutePrefix replaces the prefix of [WithRoutePrefix]. [Server.Apply] cannot change it.
	// Empty: the prefix in the program.
	RoutePrefix string
	// Deployments has settings of some deployments of the app. The other deployments keep the
	// settings in the program.
	Deployments []DeploymentConfig
	// From is the place of these settings, such as "serve.yaml:12:5", for errors.
	// Empty: unknown.
	From string
}

// DeploymentConfig holds an operator's settings of a deployment. If a field is nil, the
// setting in the program applies.
type DeploymentConfig struct {
	Name string
	// NumReplicas replaces the number of [WithReplicas], MaxOngoingRequests the number of
	// [WithMaxOngoingRequests], and MaxQueuedRequests the number of [WithMaxQueuedRequests].
	NumReplicas, MaxOngoingRequests, MaxQueuedRequests *int
	// UserConfig replaces the whole config of [WithUserConfig]. It is any value that can be
	// encoded as JSON, such as a json.RawMessage.
	UserConfig any
	// The durations replace the durations of [WithGracefulShutdown] and [WithHealthCheck].
	GracefulShutdownWaitLoop, GracefulShutdownTimeout, HealthCheckPeriod, HealthCheckTimeout *time.Duration
	// From is the place of these settings, as in AppConfig.
	From string
}

// The defaults of a deployment's settings, which are Ray Serve's.
const (
	defaultMaxOngoing    = 5
	defaultMaxQueued     = -1
	defaultHealthPeriod  = 10 * time.Second
	defaultHealthTimeout = 30 * time.Second
	defaultWaitLoop      = 2 * time.Second
	defaultStopTimeout   = 20 * time.Second
)

func defaultSettings() router.Settings {
	return router.Settings{
		Replicas:      1,
		MaxOngoing:    defaultMaxOngoing,
		MaxQueued:     defaultMaxQueued,
		HealthPeriod:  defaultHealthPeriod,
		HealthTimeout: defaultHealthTimeout,
		WaitLoop:      defaultWaitLoop,
		StopTimeout:   defaultStopTimeout,
	}
}

// checkSettings returns all faults of the settings w, joined. takesConfig reports whether
// the deployment has a PerReplica, because only its value may take a user config.
func checkSettings(w router.Settings, takesConfig bool) error {
	var faults faults
	least := func(name string, value, least int, want string) {
		if value < least {
			faults.add("%s %d: want %s", name, value, want)
		}
	}
	least("replicas", w.Replicas, 1, "1 or more")
	least("max_ongoing_requests", w.MaxOngoing, 1, "1 or more")
	least("max_queued_requests", w.MaxQueued, -1, "-1 (no limit), 0 or more")
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			faults.add("%s %v: want more than zero", name, d)
		}
	}
	positive("health check period", w.HealthPeriod)
	positive("health check timeout", w.HealthTimeout)
	positive("graceful shutdown wait loop", w.WaitLoop)
	positive("graceful shutdown timeout", w.StopTimeout)
	if !takesConfig && w.Config != "" {
		faults.add("it has a user config, and no PerReplica whose value could take it")
	}
	return errors.Join(faults...)
}

// over returns the settings w of the program with the operator's settings in place of them.
// A nil field of c replaces nothing.
func (c DeploymentConfig) over(w router.Settings) (router.Settings, error) {
	set(&w.Replicas, c.NumReplicas)
	set(&w.MaxOngoing, c.MaxOngoingRequests)
	set(&w.MaxQueued, c.MaxQueuedRequests)
	set(&w.WaitLoop, c.GracefulShutdownWaitLoop)
	set(&w.StopTimeout, c.GracefulShutdownTimeout)
	set(&w.HealthPeriod, c.HealthCheckPeriod)
	set(&w.HealthTimeout, c.HealthCheckTimeout)
	if c.UserConfig == nil {
		return w, nil
	}
	config, err := newUserConfig(c.UserConfig)
	w.Config = config.json
	return w, err
}

// set copies *from to *to, unless from is nil.
func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// declare returns the settings of each deployment and the route prefix of each app. They
// come from the program, unless configs override them. The error joins all faults, each
// with the place of the setting.
func declare(apps []*App, configs []AppConfig) (map[*Deployment]router.Settings, map[*App]string, error) {
	declared, prefixes := map[*Deployment]router.Settings{}, map[*App]string{}
	for _, a := range apps {
		if a == nil {
			continue // checkApps reports it
		}
		prefixes[a] = a.prefix
		for _, d := range a.deployments() {
			if d != nil {
				declared[d] = d.settings
			}
		}
	}
	var faults faults
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
			s, err := dc.over(d.settings)
			declared[d] = s
			if err := errors.Join(err, checkSettings(s, len(d.locals) > 0)); err != nil {
				fail(dc.From, "app %q: deployment %q: %w", a.name, d.name, err)
			}
		}
	}
	return declared, prefixes, errors.Join(faults...)
}

// placed returns err with the place of a setting in front, if the place is known.
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
