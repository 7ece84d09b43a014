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
	unload func(ctx context.Context, id string, model M) // from WithUnload; nil for none
	max    int                                           // from WithMaxModels; -1 means any number
	optErr error                                         // error of invalid options; nil if all are valid
}

// Option configures a [Models]. An invalid option makes every request fail with an
// error that describes it.
type Option struct{ apply func(*settings) }

type settings struct {
	max    int
	unload any // func(context.Context, string, M), or nil
}

// WithMaxModels sets the largest number of models that a replica holds: 1 or more, or -1 for
// any number. The default is 3. If calls use all models of a full replica, it loads another
// model nevertheless, and unloads a model when a call has ended. So the number of models is
// at most n or the number of models in use, whichever is larger. It is never larger than n if
// each call uses one model and max_ongoing_requests is at most n.
func WithMaxModels(n int) Option {
	return Option{func(s *settings) { s.max = n }}
}

// WithUnload sets the function that frees the resources of a model. M must be the type
// parameter of the [Models]. f is called once for each loaded model, when the model is
// unloaded and no call uses it. Its context ends when the replica stops and has no time left.
// If another model takes the place of the model, it is loaded after f has returned.
func WithUnload[M any](f func(ctx context.Context, id string, model M)) Option {
	return Option{func(s *settings) { s.unload = f }}
}

// New returns a cache of models. load must return the model with the given id, which is never
// empty. Clients choose the id, so load must not trust it. Loads of different models may run
// concurrently.
//
// The context of a load has the values of the context of the first request for the model. It
// has no deadline. It ends when no request waits for the model any more, or when the replica
// stops.
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

// Load returns the model with the id, and loads it if necessary. ctx must be the context of a
// request in a replica, or derived from it. If ctx ends first, Load returns its cause. The
// model stays loaded until the request has ended. Until then, further calls of Load with this
// id do not block.
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
