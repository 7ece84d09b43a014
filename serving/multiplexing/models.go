package multiplexing

import (
	"context"
	"errors"
	"fmt"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// defaultMaxModels is Ray Serve's max_num_models_per_replica.
const defaultMaxModels = 3

// ErrNoModelID is the error where a request names no model.
var ErrNoModelID = errors.New("no model id: a request names its model by the HTTP header serve_multiplexed_model_id, " +
	"the gRPC metadata multiplexed_model_id, or the option WithModelID of a handle")

// errGoexit stands for a function that ended its goroutine by runtime.Goexit.
var errGoexit = errors.New("function called runtime.Goexit")

// Models is a cache of models in each replica. Its methods are safe for
// concurrent use.
type Models[M any] struct {
	load   func(ctx context.Context, id string) (M, error)
	unload func(ctx context.Context, id string, model M) // nil: nothing is to be done
	max    int                                           // -1: any number
	fault  error                                         // of the options
}

// Option changes a [Models] as it is built. A wrong one is the error of every
// request, which tells all of them.
type Option struct{ apply func(*settings) }

type settings struct {
	max    int
	unload any // func(context.Context, string, M), or nil
}

// WithMaxModels sets how many models a replica holds, 1 or more; the default is
// 3. -1: any number. A replica whose models are all in use loads one more all the
// same, and unloads as many as it has too much once they are not: it never holds
// more than that and than calls use. So where max_ongoing_requests is not above
// it, and each call uses one model, it holds exactly.
func WithMaxModels(n int) Option {
	return Option{func(s *settings) { s.max = n }}
}

// WithUnload has f free what a model holds: called once for each model that was
// loaded, when no call uses it and it has to go. M is that of the [Models]. Its
// context ends when the replica that stops has no more time. A model for the same
// room is loaded when f has returned.
func WithUnload[M any](f func(ctx context.Context, id string, model M)) Option {
	return Option{func(s *settings) { s.unload = f }}
}

// New builds a cache. load gets the model with an id, which is never empty; ids
// come from clients, so that it must not take them for more than names. Its
// context carries values of the request that asked first, has no deadline, and
// ends when nobody waits for the model any more, or the replica stops. Loads of
// different models may run at the same time.
func New[M any](load func(ctx context.Context, id string) (M, error), opts ...Option) *Models[M] {
	s := settings{max: defaultMaxModels}
	for _, o := range opts {
		o.apply(&s)
	}
	m := &Models[M]{load: load, max: s.max}
	if s.max < 1 && s.max != -1 {
		m.fault = fmt.Errorf("multiplexing: max models %d: want 1 or more, or -1 for any number", s.max)
	}
	if s.unload != nil {
		unload, ok := s.unload.(func(context.Context, string, M))
		if !ok {
			m.fault = errors.Join(m.fault, fmt.Errorf("multiplexing: unload is a %T: want a %T", s.unload, unload))
		}
		m.unload = unload
	}
	return m
}

// Get gives the model that the request names, loading it if need be. The error
// is [ErrNoModelID] where it names none; see [Models.Load] for the others.
func (m *Models[M]) Get(ctx context.Context) (M, error) {
	var id string
	if r := identity.RequestFromContext(ctx); r != nil {
		id = r.ModelID
	}
	return m.Load(ctx, id)
}

// Load gives the model with the id, loading it if need be. Its context must be
// that of a request in a replica, or derived from one; if it ends first, Load
// returns its cause. The model may be used until the call ends, and is given
// again without ado until then.
//
// Where the model can not be loaded, every request that waits for it has the
// error, a panic as a [*tracing.PanicError], and the next one tries again.
func (m *Models[M]) Load(ctx context.Context, id string) (model M, err error) {
	if m.fault != nil {
		return model, m.fault
	}
	call := scope.FromContext(ctx)
	switch {
	case call == nil:
		return model, errors.New("multiplexing: not in a replica: give it the context of a request, or one derived from it")
	case id == "":
		return model, ErrNoModelID
	case ctx.Err() != nil:
		return model, context.Cause(ctx)
	}
	r := call.Replica
	return r.Value(m, func() any { return newCache(m, r) }).(*cache[M]).get(ctx, call, id)
}
