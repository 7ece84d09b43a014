// Package scope gives batching and multiplexing access to the replica and the call in which
// user code calls them. Package router makes a [Replica] for each replica and a [Call] for
// each call. The context of the call has both.
//
// The life of a [Call]:
//
//  1. The router's replica makes it when a call starts, and puts it into the context of
//     the user's code. Work for several calls, or after a call, makes a Call by [NewCall].
//  2. The maker ends it by [Call.End] after the user's code has returned.
//
// The life of a [Replica]: package router makes it together with its own replica, and ends
// it by [Replica.Stop] after the last call.
//
// The package does not know routers or protocols. Open scope.go first.
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

// Replica is the part of a replica that batching and multiplexing use. Its fields do not
// change after the first call has started. Its methods are safe for concurrent use.
type Replica struct {
	App, Deployment, UniqueID string
	// Runner is the *router.Replica to which this Replica belongs.
	Runner any
	// Component names the replica in spans and log lines.
	Component *identity.Component
	// MaxOngoing is the largest number of calls that the replica runs at the same time.
	MaxOngoing int
	// Server identifies the server of the replica. It is a comparable value, and equal for
	// all replicas of the same server.
	Server  any
	Tracing *spans.Tracer    // starts the spans of batches and model loads
	Log     *slog.Logger     // the server's logger
	Metrics *metrics.Replica // Prometheus metrics of the replica
	// SetModels reports to the router the ids of the models that the replica has loaded. It
	// does not block, and does not keep the slice. The router uses the ids from the next call
	// on.
	SetModels func(ids []string)

	values sync.Map // the values of method Value: *value by key

	mu      sync.Mutex
	onStop  []func(context.Context) // the functions that were passed to OnStop; nil after Stop
	stopped context.Context         // the context that was passed to Stop; nil before
}

// value is one value of method Value. Its first use makes it.
type value struct {
	mu   sync.Mutex // held while construct runs
	made bool       // v was made
	v    any
}

// Value returns the value of key in this replica. The first call for a key makes the value
// by construct. Use a pointer or a type of your own as the key, as for context.WithValue.
// Calls for the same key wait while construct runs. If construct panics, the next call
// runs it again.
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

// OnStop registers f, which [Replica.Stop] calls when the replica stops. The function that
// was registered last is called first. f must return when its context ends. If that context
// has already ended, calls of the replica may still run. If Stop was called before, OnStop
// calls f at once.
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

// Stop calls the functions that were registered by OnStop with ctx, one after another. Later
// calls of Stop do nothing.
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

// Panicked logs a panic of user code with the message msg, and returns it as an error with
// the stack of the goroutine. v is the value of the panic. Call Panicked in the deferred
// function that recovered v. The log line has the attributes owner, which names the user
// code, the replica's, and more.
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

// Call is one call that a replica runs. Its methods are safe for concurrent use.
type Call struct {
	Replica *Replica
	// Task is the router.Call; nil for a Call of NewCall. It does not change after the user's
	// code has started.
	Task any

	onEnd atomic.Pointer[ending] // list of the functions that were passed to OnEnd, the newest first; &over after End
}

// ending is an entry in the list of functions that End calls.
type ending struct {
	f    func()
	next *ending
}

var over ending

// NewCall returns a Call for work that does not belong to a single call, such as a batch.
// Such work may run longer than the calls that caused it. When the work is done, the caller
// must call [Call.End].
func NewCall(r *Replica) *Call { return &Call{Replica: r} }

// String implements [fmt.Stringer]. Without this method, printing a context would read all
// fields of its call by reflection, which is a data race.
func (c *Call) String() string {
	return "call in " + c.Replica.App + "#" + c.Replica.Deployment + "#" + c.Replica.UniqueID
}

// Key is the key under which a context has its *Call.
type Key struct{}

// ContextWithCall returns a copy of ctx for which FromContext returns c.
func ContextWithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, Key{}, c)
}

// FromContext returns the call that ctx belongs to. It returns nil if ctx is not the context
// of user code in a replica.
func FromContext(ctx context.Context) *Call {
	c, _ := ctx.Value(Key{}).(*Call)
	return c
}

// OnEnd registers f, which [Call.End] calls after the user's code has returned or
// panicked. The function that was registered last is called first. If End was called
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

// Ended reports whether End was called, because the user's code has returned.
func (c *Call) Ended() bool { return c.onEnd.Load() == &over }

// End calls the functions that were registered by OnEnd. The maker of the call calls it once.
func (c *Call) End() {
	for e := c.onEnd.Swap(&over); e != nil; e = e.next {
		e.f()
	}
}
