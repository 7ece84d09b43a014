// Package scope is what a replica and a call in it have in common for the parts
// of the runtime that run inside of user code: package serving makes a [Replica]
// per replica and a [Call] per call, and packages batching and multiplexing
// find them in the context of the call.
//
// The life of a Call: serving makes it as a replica starts a call, puts it into
// the context of the user's code, and ends it with [Call.End] once that code
// has really returned. What runs for several calls, or after them, makes its
// own with [NewCall]. A call by handle is made inside of a Call that has not
// ended, or comes from outside. The life of a Replica: made with the replica, it is
// ended by [Replica.Stop] after the last call.
//
// The package knows neither routers nor protocols. Open scope.go, which is all.
package scope

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

// Replica is one replica as what runs inside of it sees it. Its fields do not
// change once it runs calls; its methods are safe for concurrent use.
type Replica struct {
	App, Deployment, UniqueID string
	// Runner is package serving's own replica; nil without a server.
	Runner any
	// Component names it in spans and in lines of the log; nil without a server.
	Component *identity.Component
	// MaxOngoing is how many calls it runs at a time.
	MaxOngoing int
	// Server is the same in all replicas of one server, and in no others; it
	// can be compared.
	Server any
	// Tracing makes the spans; never nil.
	Tracing *spans.Tracer
	// Log is the server's; never nil.
	Log *slog.Logger
	// Metrics are the replica's; nil, which counts nothing, without a server.
	Metrics *metrics.Replica
	// Models takes the ids of the models that the replica holds, to the router;
	// nil where nobody asks for them. It does not block.
	Models func(ids []string)

	values sync.Map // key → *value

	mu      sync.Mutex
	onStop  []func(context.Context)
	stopped context.Context // that of Stop, once it was called
}

// value is made at its first use.
type value struct {
	made atomic.Bool
	v    any // written before made is set

	mu sync.Mutex // held while it is made
}

// Value gives what belongs to key in this replica, and has construct make it at the
// first use. Keys are compared as those of a context are: use a pointer, or a
// type of your own. Uses of the same key wait while construct runs; if it panics,
// the next use tries again.
func (r *Replica) Value(key any, construct func() any) any {
	found, ok := r.values.Load(key)
	if !ok {
		found, _ = r.values.LoadOrStore(key, new(value))
	}
	v := found.(*value)
	if v.made.Load() {
		return v.v
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.made.Load() {
		v.v = construct()
		v.made.Store(true)
	}
	return v.v
}

// OnStop has f called when the replica has stopped: after its last call, or
// when there is no more time to wait for that, which its context then shows.
// The last that was registered is called first. f must return when its context
// ends. On a replica that has stopped before, it is called at once.
func (r *Replica) OnStop(f func(context.Context)) {
	r.mu.Lock()
	stopped := r.stopped
	if stopped == nil {
		r.onStop = append(r.onStop, f)
	}
	r.mu.Unlock()
	if stopped != nil {
		f(stopped)
	}
}

// Stop calls what OnStop was given, and returns when that has returned. Later
// calls do nothing.
func (r *Replica) Stop(ctx context.Context) {
	r.mu.Lock()
	funcs := r.onStop
	r.onStop = nil
	if r.stopped == nil {
		r.stopped = ctx
	}
	r.mu.Unlock()
	for _, f := range slices.Backward(funcs) {
		f(ctx)
	}
}

// SetModels tells which models the replica holds from now on; ids is not kept.
// When it returns, the next call is routed by them.
func (r *Replica) SetModels(ids []string) {
	if r.Models != nil {
		r.Models(ids)
	}
}

// Panicked logs, as msg, that user code panicked with v, and gives the panic as
// an error with the stack of the goroutine. Call it where v was recovered. The
// line says first whose code it was, then the replica, then more.
func (r *Replica) Panicked(ctx context.Context, msg string, v any, whose slog.Attr, more ...slog.Attr) error {
	p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
	attrs := []slog.Attr{
		whose,
		slog.String(tracing.LogApp, r.App),
		slog.String(tracing.LogDeployment, r.Deployment),
		slog.String(tracing.LogReplica, r.UniqueID),
	}
	attrs = append(attrs, more...)
	attrs = append(attrs, slog.Any("panic", v), slog.String("stack", string(p.Stack)))
	r.Log.LogAttrs(ctx, slog.LevelError, msg, attrs...)
	return p
}

// Call is one call in a replica. Its methods are safe for concurrent use.
type Call struct {
	Replica *Replica
	// Task is package serving's own call; nil for the work of NewCall. It does not
	// change once the user's code runs.
	Task any

	onEnd atomic.Pointer[ending] // the last first; &over once the call has ended
}

// ending is what is to be done as a call ends.
type ending struct {
	f    func()
	next *ending
}

var over ending

// NewCall is for work of a replica that is no call of its router's, such as a
// batch: it may outlive the calls that it is done for. Whoever makes it ends it.
func NewCall(r *Replica) *Call { return &Call{Replica: r} }

// String implements [fmt.Stringer]. Otherwise a handler that prints its context
// would read all of the call, while it changes.
func (c *Call) String() string {
	return "call in " + c.Replica.App + "#" + c.Replica.Deployment + "#" + c.Replica.UniqueID
}

// Key is the key of a context's *Call.
type Key struct{}

// ContextWithCall returns a context that belongs to c.
func ContextWithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, Key{}, c)
}

// FromContext returns the call that ctx belongs to; nil outside of a replica.
func FromContext(ctx context.Context) *Call {
	c, _ := ctx.Value(Key{}).(*Call)
	return c
}

// OnEnd has f called when the user's code has really returned, however it did;
// the last that was registered first. On a call that has ended before, it is
// called at once. f must not block.
func (c *Call) OnEnd(f func()) {
	e := &ending{f: f}
	for {
		e.next = c.onEnd.Load()
		if e.next == &over {
			f()
			return
		}
		if c.onEnd.CompareAndSwap(e.next, e) {
			return
		}
	}
}

// Ended says whether the user's code has returned.
func (c *Call) Ended() bool { return c.onEnd.Load() == &over }

// End calls what OnEnd was given. It is for whoever made the call, once.
func (c *Call) End() {
	for e := c.onEnd.Swap(&over); e != nil; e = e.next {
		e.f()
	}
}
