package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/servetrace/servetrace/serving/internal/router"
)

// Local stands for one value in each replica of a deployment: a loaded model, a connection,
// or another value that takes time to make or must not be shared. It corresponds to the
// instance of the class that Ray Serve makes for each replica. [PerReplica] returns it.
type Local[T any] struct {
	deployment string
}

// PerReplica has each replica of d construct a value before it takes calls. The replicas
// are constructed in the background from [Server.Start] on, each on a goroutine of its
// own; requests that come earlier wait. Values of several PerReplica are constructed in
// the order of these calls, and a later construct can Get the earlier values.
//
// A construct that fails or panics is tried again, with a fresh replica, after 1 s, 2 s
// and so on, up to 64 s. If a replica of d has run before, the tries do not end.
// Otherwise d is unavailable after min(3 x replicas, 20) tries (see
// [DeploymentUnavailableError]). construct may take as long as it needs. Its context ends
// when the replica must stop before it is ready.
//
// A T may have the methods of [Reconfigurer], [HealthChecker] and [Stopper]. construct
// and these methods get a context with which [ReplicaContext] and [Local.Get] work as in
// a call.
//
// Call PerReplica before [New] gets d's app.
func PerReplica[T any](d *Deployment, construct func(ctx context.Context) (T, error)) *Local[T] {
	l := &Local[T]{deployment: d.name}
	d.locals = append(d.locals, router.Constructor{Key: l, Make: func(ctx context.Context) (router.Value, error) {
		local, err := construct(ctx)
		return valueOf(local), err
	}})
	return l
}

// valueOf returns a value with its hooks.
func valueOf(local any) router.Value {
	v := router.Value{Local: local}
	if r, is := local.(Reconfigurer); is {
		v.Reconfigure = func(ctx context.Context, config string) error {
			return r.Reconfigure(ctx, UserConfig{json: config})
		}
	}
	if c, is := local.(HealthChecker); is {
		v.CheckHealth = c.CheckHealth
	}
	if s, is := local.(Stopper); is {
		v.Stop = s.Stop
	}
	return v
}

// Get returns the value of the replica that runs the call, at once and without a lock.
// ctx must be the context of the call, or one derived from it. Get panics outside of
// calls, and in calls of other deployments: such a Get is a fault of the program.
func (l *Local[T]) Get(ctx context.Context) T {
	local, ok := router.LocalValue(ctx, l)
	if !ok {
		//nolint:forbidigo // a fault of the program, as a nil map is; the call's own recover answers 500
		panic(fmt.Sprintf("serving: Get of a value of deployment %q outside of its calls; give it the context of a call, and call it in that deployment", l.deployment))
	}
	v, _ := local.(T) // a T that is an interface may be nil
	return v
}

// Reconfigurer is a value of [PerReplica] that takes the user config: after the
// construction of the value, if there is a config, and whenever the config changes
// ([Server.Reconfigure], or the service file). Reconfigure may be called while calls run.
// Once its context has ended, the replica does not wait for it.
//
// Reconfigure fails if it returns an error, panics, or does not return in time. If it
// fails at the start of a replica, the start has failed. If it fails later, the replica
// is replaced, as in Ray Serve; see [Server.Reconfigure].
type Reconfigurer interface {
	Reconfigure(ctx context.Context, config UserConfig) error
}

// HealthChecker is a value of [PerReplica] that checks whether its replica works.
// CheckHealth is called before the replica takes its first call. If that check fails, the
// start has failed. Later it is called at the interval of [WithHealthCheck], one check at
// a time, while calls run. A check fails if it returns an error, panics, or does not
// return before its context ends.
type HealthChecker interface {
	CheckHealth(ctx context.Context) error
}

// Stopper is a value of [PerReplica] that releases its resources when its replica stops.
// Stop is called when the replica has no call any more, and gets none. Values are stopped
// in the reverse order of their construction. The context ends with the timeout of
// [WithGracefulShutdown]; the replica does not wait longer. An error is logged.
//
// If the server is shut down with too little time for the replica's calls, Stop is not
// called, because the calls may still use the value.
type Stopper interface {
	Stop(ctx context.Context) error
}

// UserConfig is an operator's configuration of a deployment's own code: a JSON value,
// from [WithUserConfig], [Server.Reconfigure] or user_config of the service file. The
// zero UserConfig means no configuration. Two values are equal if their JSON texts are
// equal.
type UserConfig struct {
	json string // compact; empty for none
}

// newUserConfig returns the config of any value that has a form in JSON; nil means no
// config.
func newUserConfig(v any) (UserConfig, error) {
	if c, is := v.(UserConfig); is || v == nil {
		return c, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return UserConfig{}, fmt.Errorf("user config: %w", err)
	}
	if string(data) == "null" {
		return UserConfig{}, nil
	}
	return UserConfig{json: string(data)}, nil
}

// IsZero reports whether there is no config.
func (c UserConfig) IsZero() bool { return c.json == "" }

// String returns the JSON text, or "" if there is no config.
func (c UserConfig) String() string { return c.json }

// Decode reads the config into the value that v points to, as encoding/json does. It
// refuses keys that v has no field for, because a misspelt key would have no effect.
// Without a config, v stays as it is.
func (c UserConfig) Decode(v any) error {
	if c.IsZero() {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader([]byte(c.json)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("user config: %w", err)
	}
	return nil
}
