package multiplexing

import (
	"context"
	"errors"
	"fmt"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// defaultMaxModels is the default of Ray Serve's max_num_models_per_replica.
const defaultMaxModels = 3

// ErrNoModelID is returned if a request names no model.
var ErrNoModelID = errors.New("no model id: a request names its model by the HTTP header serve_multiplexed_model_id, " +
	"the gRPC metadata multiplexed_model_id, or the option WithModelID of a handle")

// errGoexit is the error of a load function that ended its goroutine by runtime.Goexit.
var errGoexit = errors.New("function called runtime.Goexit")

// Models is a cache of models in each replica. Its methods are safe for
// concurrent use.
type Models[M any] struct {
	load   func(ctx context.Context, id string) (M, error)
	unload func(ctx context.Context, id string, model M) // nil if nothing is to be freed
	max    int                                           // -1 means any number
	optErr error                                         // error of invalid options
}

// Option configures a [Models]. An invalid option makes every request fail with an
// error that describes it.
type Option struct{ apply func(*settings) }

type settings struct {
	max    int
	unload any // func(context.Context, string, M), or nil
}

// WithMaxModels sets how many models a replica holds: 1 or more, or -1 for any number.
// The default is 3. If all models are in use, the replica loads one more, and unloads the
// surplus as soon as calls end. So the number of models never exceeds the larger of n and
// the number of models in use. The limit is exact if each call uses one model and
// max_ongoing_requests is at most n.
func WithMaxModels(n int) Option {
	return Option{func(s *settings) { s.max = n }}
}

// WithUnload sets the function that frees a model. f is called once for each loaded
// model, when no call uses it and it must be unloaded. M must be the type parameter of
// the [Models]. The context ends when a stopping replica has no time left. A model that
// takes the place of this model is loaded after f has returned.
func WithUnload[M any](f func(ctx context.Context, id string, model M)) Option {
	return Option{func(s *settings) { s.unload = f }}
}

// New returns a cache of models. load returns the model with the given id. The id is
// never empty. Clients choose the id, so load must treat it as an untrusted name. The
// context of a load carries the values of the first request for the model, and has no
// deadline. The context ends when no request waits for the model any more, or when the
// replica stops. Loads of different models may run concurrently.
func New[M any](load func(ctx context.Context, id string) (M, error), opts ...Option) *Models[M] {
	s := settings{max: defaultMaxModels}
	for _, o := range opts {
		o.apply(&s)
	}
	m := &Models[M]{load: load, max: s.max}
	if s.max < 1 && s.max != -1 {
		m.optErr = fmt.Errorf("multiplexing: max models %d: want 1 or more, or -1 for any number", s.max)
	}
	if s.unload != nil {
		unload, ok := s.unload.(func(context.Context, string, M))
		if !ok {
			m.optErr = errors.Join(m.optErr, fmt.Errorf("multiplexing: unload is a %T: want a %T", s.unload, unload))
		}
		m.unload = unload
	}
	return m
}

// Get returns the model that the request names, and loads it if necessary. If the request
// names no model, the error is [ErrNoModelID]. See [Models.Load] for the other errors.
func (m *Models[M]) Get(ctx context.Context) (M, error) {
	return m.Load(ctx, identity.ModelID(ctx))
}

// Load returns the model with the id, and loads it if necessary. ctx must be the
// context of a request in a replica, or derived from it. If ctx ends first, Load
// returns its cause. The model may be used until the call ends; until then, further
// calls of Load return it without blocking.
//
// If the load fails, every request that waits for it gets the error, and the next
// request tries again. A panic becomes a [*tracing.PanicError].
func (m *Models[M]) Load(ctx context.Context, id string) (model M, err error) {
	if m.optErr != nil {
		return model, m.optErr
	}
	call := scope.FromContext(ctx)
	switch {
	case call == nil:
		return model, errors.New("multiplexing: the context belongs to no replica: pass the context of a request, or one derived from it")
	case id == "":
		return model, ErrNoModelID
	case ctx.Err() != nil:
		return model, context.Cause(ctx)
	}
	r := call.Replica
	return r.Value(m, func() any { return newCache(m, r) }).(*cache[M]).get(ctx, call, id)
}
