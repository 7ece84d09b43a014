package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/servetrace/servetrace/serving/internal/router"
)

// Local gives user code the value that its replica has constructed, such as a loaded model
// or a connection. Each replica of a deployment has its own value, because the value takes
// time to make or must not be shared. [PerReplica] returns a Local. The value corresponds to
// the instance of a deployment class in Ray Serve.
type Local[T any] struct {
	deployment string
}

// PerReplica makes each replica of d call construct before the replica takes calls. After
// [Server.Start], the replicas call construct in the background, each on its own goroutine.
// Requests wait until a replica is ready. If PerReplica is called several times for d, the
// values are constructed in the order of these calls. A later construct can Get the values
// of the earlier calls.
//
// If construct fails or panics, a new replica tries again after 1 s, 2 s, 4 s and so on, up
// to 64 s. If no replica of d has ever run, d is unavailable after min(3 x replicas, 20)
// tries (see [DeploymentUnavailableError]). Otherwise the tries go on without an end.
// construct may take any time. Its context ends if the replica must stop before it is ready.
//
// T may implement [Reconfigurer], [HealthChecker] and [Stopper]. construct and the methods
// of these interfaces get a context with which [ReplicaContext] and [Local.Get] work as in a
// call.
//
// PerReplica must be called before [New] builds a server for d.
func PerReplica[T any](d *Deployment, construct func(ctx context.Context) (T, error)) *Local[T] {
	l := &Local[T]{deployment: d.name}
	d.locals = append(d.locals, router.Constructor{Key: l, Make: func(ctx context.Context) (router.Value, error) {
		local, err := construct(ctx)
		return valueOf(local), err
	}})
	return l
}

// valueOf returns the value of a replica with the optional methods that it implements.
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

// Get returns the value of the replica that runs the current call. It does not block. ctx
// must be the context of a call in the deployment of l, or derived from it. Otherwise Get
// panics, because the program is wrong.
func (l *Local[T]) Get(ctx context.Context) T {
	local, ok := router.LocalValue(ctx, l)
	if !ok {
		//nolint:forbidigo // a fault of the program, as a nil map is; the call's own recover answers 500
		panic(fmt.Sprintf("serving: Get of a value of deployment %q outside of its calls; give it the context of a call, and call it in that deployment", l.deployment))
	}
	v, _ := local.(T) // if T is an interface and construct returned nil, the assertion fails and v is nil
	return v
}

// Reconfigurer is a value of [PerReplica] that takes the user config. Reconfigure is called
// after the construction of the value, if there is a config, and after each change of the
// config by [Server.Reconfigure] or the service file. It may be called while calls run.
// When its context has ended, the replica no longer waits for it.
//
// Reconfigure fails if it returns an error, panics, or does not return in time. If it fails
// during the start of a replica, the start has failed. If it fails later, another replica
// replaces this replica, as in Ray Serve; see [Server.Reconfigure].
type Reconfigurer interface {
	Reconfigure(ctx context.Context, config UserConfig) error
}

// HealthChecker is a value of [PerReplica] that checks whether its replica works. CheckHealth
// is called before the replica takes its first call, and if this check fails, the start of
// the replica has failed. After that it is called at the interval of [WithHealthCheck], one
// check at a time, while calls run. A check fails if CheckHealth returns an error, panics, or
// does not return before its context ends.
type HealthChecker interface {
	CheckHealth(ctx context.Context) error
}

// Stopper is a value of [PerReplica] that releases its resources when its replica stops. Stop
// is called when the last call of the replica has ended. The values of a replica are stopped
// in the reverse order of their construction. The context ends with the timeout of
// [WithGracefulShutdown], and the replica does not wait longer. An error is logged.
//
// If [Server.Shutdown] runs out of time before the replica's calls have ended, Stop is not
// called, because these calls may still use the value.
type Stopper interface {
	Stop(ctx context.Context) error
}

// UserConfig is a configuration that a deployment passes to user code: a JSON value from
// [WithUserConfig], [Server.Reconfigure] or user_config in the service file. The zero
// UserConfig means no configuration. Two UserConfigs are equal (==) if their JSON texts are
// equal.
type UserConfig struct {
	json string // the JSON text without blanks; empty if there is no configuration
}

// newUserConfig returns v, encoded as JSON, as a UserConfig. It returns the zero UserConfig
// if v is nil or its JSON is null.
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

// Decode decodes the config into the value that v points to, as package encoding/json does.
// It returns an error for a key that has no field in v, because a misspelt key would have no
// effect. If there is no config, v stays unchanged.
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
