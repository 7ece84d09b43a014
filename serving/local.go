package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Local is a value that each replica of a deployment has one of: a loaded model,
// a connection, what else takes time to make or is not to be shared. It is the
// instance of the class that Ray Serve makes per replica. Get it from
// [PerReplica].
type Local[T any] struct {
	deployment *Deployment
	at         int
}

// PerReplica has each replica of d construct a value before it takes calls. The
// replicas are constructed in the background from [Server.Start] on, each on a
// goroutine of its own; requests that come earlier wait. Values of several
// PerReplica are constructed in the order of these calls, and a later one finds
// the earlier ones by [Local.Get].
//
// A construct that fails or panics is tried again, with a fresh replica, after
// 1 s, then 2 s and so on up to 64 s: without an end once a replica of d has run,
// else min(3 x replicas, 20) times in all, and then d is unavailable (see
// [DeploymentUnavailableError]). It may take as long as it needs. Its context
// ends when the replica is to stop before it is ready.
//
// A T may have the methods of [Reconfigurer], [HealthChecker] and [Stopper].
// Construct and these have a context for which [ReplicaContext] and [Local.Get]
// work as in a call.
//
// Call PerReplica before [New] gets d's app.
func PerReplica[T any](d *Deployment, construct func(ctx context.Context) (T, error)) *Local[T] {
	l := &Local[T]{deployment: d, at: len(d.locals)}
	d.locals = append(d.locals, func(ctx context.Context) (any, error) { return construct(ctx) })
	return l
}

// Get gives the value of the replica that runs the call with the context ctx, or
// one derived from it: at once, without a lock. It panics where there is none:
// outside of calls, and in calls of other deployments, which is a fault of the
// program.
func (l *Local[T]) Get(ctx context.Context) T {
	r := replicaIn(ctx)
	if r == nil || r.deployment != l.deployment || l.at >= len(r.values) {
		//nolint:forbidigo // a fault of the program, as a nil map is; the call's own recover answers 500
		panic(fmt.Sprintf("serving: Get of a value of deployment %q outside of its calls; give it the context of a call, and call it in that deployment", l.deployment.name))
	}
	v, _ := r.values[l.at].(T) // a T that is an interface may be nil
	return v
}

// Reconfigurer is a value of [PerReplica] that takes the user config: after its
// construction, where there is one, and whenever it changes ([Server.Reconfigure],
// or the service file). It may be called while calls run. Once its context has
// ended, nobody waits for it.
//
// An error, a panic, or no return in time at a start is a failed start. At a
// change, the replica is replaced, as in Ray Serve; see [Server.Reconfigure].
type Reconfigurer interface {
	Reconfigure(ctx context.Context, config UserConfig) error
}

// HealthChecker is a value of [PerReplica] that knows whether its replica works.
// It is asked before the replica takes its first call, which a failure makes a
// failed start, and then as [WithHealthCheck] says, one call at a time, while
// calls run. A panic is a failure, and so is no return before its context ends.
type HealthChecker interface {
	CheckHealth(ctx context.Context) error
}

// Stopper is a value of [PerReplica] that is told when its replica is no more: it
// has no call any more, and gets none. Values are stopped in the reverse order of
// their construction. Its context ends as [WithGracefulShutdown] says; nobody
// waits for it then. An error is logged.
//
// Where the server is shut down with too little time for the replica's calls, it
// is not called: they may still use the value.
type Stopper interface {
	Stop(ctx context.Context) error
}

// UserConfig is what an operator has for a deployment's own code: a JSON value,
// by [WithUserConfig], [Server.Reconfigure] or user_config of the service file.
// The zero UserConfig is none. It is compared by its JSON text.
type UserConfig struct {
	json string // compact; empty for none
}

// newUserConfig makes a config of any value that has a form in JSON; nil is none.
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

// IsZero reports whether there is none.
func (c UserConfig) IsZero() bool { return c.json == "" }

// String gives the JSON text; empty for none.
func (c UserConfig) String() string { return c.json }

// Decode reads the config into what v points to, as encoding/json does, and
// refuses keys that v has no field for: a key that is misspelt would else have
// no effect. Without a config, v stays as it is.
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
