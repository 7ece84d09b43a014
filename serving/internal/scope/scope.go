// Package scope gives the parts of the runtime that run inside user code access to
// their replica and their call. Package router makes a [Replica] for each replica and
// a [Call] for each call. Packages batching and multiplexing find both in the context of
// the call.
//
// The life of a Call: the router's replica makes it when a call starts, and puts it into
// the context of the user's code. The replica ends it by [Call.End] after that code has
// returned. Work for several calls, or after a call, makes a Call of its own by
// [NewCall]. The life of a Replica: package router makes it together with its own replica,
// and ends it by [Replica.Stop] after the last call.
//
// The package knows neither routers nor protocols. Open scope.go first.
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

// Replica is the part of a replica that code inside it uses. Its fields do not change after
// the first call has started. Its methods are safe for concurrent use.
type Replica struct {
	App, Deployment, UniqueID string
	// Runner is the *router.Replica.
	Runner any
	// Component names the replica in spans and log lines.
	Component *identity.Component
	// MaxOngoing is the highest number of calls at a time.
	MaxOngoing int
	// Server is a comparable value. Replicas of the same server have equal values.
	Server  any
	Tracing *spans.Tracer    // makes the spans
	Log     *slog.Logger     // the server's logger
	Metrics *metrics.Replica // metrics of the replica
	// SetModels reports to the router the ids of the models that the replica has from now
	// on. It does not block, and does not keep the slice. The router uses the ids for the
	// next call after SetModels returns.
	SetModels func(ids []string)

	values sync.Map // key → *value

	mu      sync.Mutex
	onStop  []func(context.Context)
	stopped context.Context // the context of Stop; nil before the call of Stop
}

// value is a value of a replica. It is constructed when it is first used.
type value struct {
	mu   sync.Mutex // held while v is made
	made bool
	v    any
}

// Value returns the value of key in this replica. The first use makes it by
// construct. Keys are compared like keys of a context: use a pointer, or a type of
// your own. Uses of the same key wait while construct runs. If construct panics, the
// next use tries again.
func (r *Replica) Value(key any, construct func() any) any {
	found, ok := r.values.Load(key)
	if !ok {
		found, _ = r.values.LoadOrStore(key, new(value))
	}
	v := found.(*value)
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.made {
		v.v = construct()
		v.made = true
	}
	return v.v
}

// OnStop registers f, which [Replica.Stop] calls: after the replica's last call, or
// with an ended context if there is no more time to wait for that call. The function
// registered last is called first. f must return when its context ends. If the replica
// has stopped before, OnStop calls f at once.
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

// Stop calls the functions of OnStop, and returns after the last of them has returned.
// Later calls do nothing.
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

// Panicked logs a panic v of user code as msg, and returns it as an error with the
// stack of the goroutine. Call it in the function that recovered v. The attributes of
// the log line are owner, which names the code, then the replica, then more.
func (r *Replica) Panicked(ctx context.Context, msg string, v any, owner slog.Attr, more ...slog.Attr) error {
	p := &tracing.PanicError{Value: v, Stack: debug.Stack()}
	attrs := []slog.Attr{
		owner,
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
	// Task is the router.Call; nil for the work of NewCall. It does not change after the
	// user's code has started.
	Task any

	onEnd atomic.Pointer[ending] // the newest first; &over after the end of the call
}

// ending is a function to call at the end of a call.
type ending struct {
	f    func()
	next *ending
}

var over ending

// NewCall returns a Call for work that does not belong to a single call, such as a batch.
// Such work may last longer than the calls that caused it. The caller must end it by
// [Call.End].
func NewCall(r *Replica) *Call { return &Call{Replica: r} }

// String implements [fmt.Stringer]. Without it, a handler that prints its context
// would read all fields of the call while they change.
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

// OnEnd registers f, which [Call.End] calls after the user's code has returned or
// panicked. The function registered last is called first. If the call has ended
// before, OnEnd calls f at once. f must not block.
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

// Ended reports whether the user's code has returned.
func (c *Call) Ended() bool { return c.onEnd.Load() == &over }

// End calls the functions of OnEnd. The maker of the call calls it once.
func (c *Call) End() {
	for e := c.onEnd.Swap(&over); e != nil; e = e.next {
		e.f()
	}
}
