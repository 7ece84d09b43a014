package router

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/scope"
	"github.com/servetrace/servetrace/tracing"
)

// hooks runs user code of a deployment that is not part of a call: constructors,
// Reconfigure, health checks and Stop. Its methods are safe for concurrent use.
type hooks struct {
	ctx      context.Context         // the contexts of the user code are derived from it
	cut      context.CancelCauseFunc // ends ctx
	returned func()                  // called without a lock after user code has returned

	mu      sync.Mutex
	running map[string]int // number of runs of user code that have not returned, by name
}

func newHooks(returned func()) *hooks {
	h := &hooks{returned: returned, running: map[string]int{}}
	h.ctx, h.cut = context.WithCancelCause(context.Background())
	return h
}

// run runs the user code f for the replica r on another goroutine, with the context ctx, and
// returns its error. A panic becomes an error. name describes the code in errors. When the
// context patience ends, run waits for inflight.CutGrace more. Then it returns an error
// although the code still runs.
func (h *hooks) run(patience, ctx context.Context, r *Replica, name string, f func(context.Context) error) error {
	done := h.begin(ctx, r, name, f)
	select {
	case err := <-done:
		return err
	case <-patience.Done():
	}
	grace := time.NewTimer(inflight.CutGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return err
	case <-grace.C:
		return fmt.Errorf("%s has not returned: %w", name, context.Cause(patience))
	}
}

// begin starts the user code f as run does, and does not wait for it. done receives the
// error of f. Until f has returned, the result of left contains its name.
func (h *hooks) begin(ctx context.Context, r *Replica, name string, f func(context.Context) error) (done <-chan error) {
	name = name + " of " + r.scope.App + "#" + r.scope.Deployment + "#" + r.uniqueID()
	h.count(name, 1)
	work := scope.NewCall(r.scope)
	ctx = scope.ContextWithCall(identity.ContextWithReplica(ctx, r.component), work)
	result := make(chan error, 1)
	go func() { // ReplicaSet.Wait waits for it
		err := cause.ErrGoexit
		defer func() {
			work.End()
			if v := recover(); v != nil {
				err = &tracing.PanicError{Value: v, Stack: debug.Stack()}
			}
			result <- err
			h.count(name, -1)
			h.returned()
		}()
		err = scope.Touch(f(ctx))
	}()
	return result
}

// count adds more, which may be negative, to the number of runs with this name.
func (h *hooks) count(name string, more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[name] += more; h.running[name] == 0 {
		delete(h.running, name)
	}
}

// left returns the names of the user code that has not returned.
func (h *hooks) left() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.running))
	for name, n := range h.running {
		if n > 1 {
			name = fmt.Sprintf("%s (%d times)", name, n)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
