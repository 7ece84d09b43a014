package router

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// Call is the work of a replica for one request by HTTP or gRPC, or one call by handle. A
// replica runs it once: it calls Describe, Invoke and End in that order, on one goroutine.
type Call interface {
	// Describe returns the data of the call for the replica span. The replica sets the fields
	// Request and Unsampled of the result.
	Describe() spans.ReplicaStart
	// Invoke runs the user's code with the context ctx and returns its error. The
	// replica handles panics and runtime.Goexit.
	Invoke(ctx context.Context) error
	// End is called when the user's code has returned with err, which may be cause.ErrGoexit
	// or a *tracing.PanicError. It completes the response. It returns the result for the
	// span, and the error that ended the call.
	End(ctx context.Context, err error) (spans.ReplicaResult, error)
}

// CallerCode is a Call that may run code of its caller within Invoke: the body of the
// caller's loop over a stream.
type CallerCode interface {
	Call
	// InCaller reports whether the caller's code is running. If so, the replica does not
	// recover a panic, because it belongs to the caller.
	InCaller() bool
}

// Replica runs a deployment's code in this process. The router bounds the number of requests
// that it runs at a time.
type Replica struct {
	component *identity.Component
	scope     *scope.Replica
	holds     atomic.Pointer[[]string] // ids of the models that it holds or loads; nil if there are none

	// cutOff ends when proxies must no longer wait for the calls of the replica. Its cause is
	// the reason.
	cutOff context.Context
	cut    context.CancelCauseFunc // ends cutOff

	// values has the values that the constructors have made, in the order of the
	// constructors. It does not change after the replica has taken its first call.
	values []value
}

// value is a value that a constructor has made for a replica.
type value struct {
	Value

	key any // key of the constructor
}

// newReplica returns a replica without values. limit is the largest number of requests that
// it runs at a time. The router r is informed of changes of the replica's models.
func newReplica(s *Shared, c *Config, limit int, r *router) *Replica {
	component := s.Tracer.NewReplica(c.App, c.Name)
	cutOff, cut := context.WithCancelCause(s.Base)
	replica := &Replica{
		component: component,
		cutOff:    cutOff,
		cut:       cut,
		scope: &scope.Replica{
			App:        c.App,
			Deployment: c.Name,
			UniqueID:   component.UniqueID(),
			Component:  component,
			MaxOngoing: limit,
			Server:     s.Counter,
			Tracing:    s.Tracer,
			Log:        s.Log.Logger,
			Metrics:    s.Metrics.Replica(c.App, c.Name, component.UniqueID()),
		},
	}
	replica.scope.Runner = replica
	replica.scope.SetModels = func(ids []string) {
		ids = slices.Clone(ids)
		replica.holds.Store(&ids)
		r.announce(replica)
	}
	return replica
}

// LocalValue returns the value that the constructor with the key has made for a replica. ctx
// must be a context that the replica has passed to user code, or derived from it. ok is false
// if there is no such replica or value.
func LocalValue(ctx context.Context, key any) (local any, ok bool) {
	c := scope.FromContext(ctx)
	if c == nil {
		return nil, false
	}
	for _, v := range c.Replica.Runner.(*Replica).values {
		if v.key == key {
			return v.Local, true
		}
	}
	return nil, false
}

func (r *Replica) uniqueID() string { return r.component.UniqueID() }

// models returns the ids of the multiplexed models that the replica holds or loads. The
// caller must not change them.
func (r *Replica) models() []string {
	if ids := r.holds.Load(); ids != nil {
		return *ids
	}
	return nil
}
