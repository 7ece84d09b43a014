package multiplexing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

var (
	errUnwanted = fmt.Errorf("no request waits for the model any more: %w", context.Canceled)
	errStopped  = errors.New("multiplexing: the replica has stopped")
)

// cache holds the models of one replica.
//
// Each load and each unload runs in its own goroutine; stop waits for all of them. A
// model counts as held while it is loading or loaded. If more models are held than
// allowed, the cache unloads unused models, least recently used first. A model in use
// is never unloaded.
type cache[M any] struct {
	models  *Models[M]
	replica *scope.Replica
	metrics *metrics.Models
	// unloadCtx is the context of the unload functions. stop cancels it when stop returns.
	unloadCtx    context.Context //nolint:containedctx // it is the cache's own
	cancelUnload context.CancelFunc

	mu      sync.Mutex
	entries map[string]*entry[M] // the newest entry of each model id
	held    int                  // models that are loading or loaded
	room    room[M]
	uses    usage[M]
	running int // goroutines that load or unload
	stopped bool
	idle    chan struct{} // closed once stopped is set and running is 0
}

// state is the stage of an entry's life.
type state uint8

const (
	loading state = iota
	loaded
	unloading
	gone
)

// entry is one model, from the first request for the model until the model is unloaded.
type entry[M any] struct {
	id   string
	done chan struct{} // closed when the load has succeeded or failed

	model M     // written before done is closed
	err   error // written before done is closed

	// The fields below are guarded by the cache's mu.
	state   state
	cancel  context.CancelCauseFunc // cancels the load
	waiting map[*scope.Call]int     // number of waiting requests per call, while loading
	// unwanted is set when the load was cancelled because no request waited for it. The
	// next request then starts a new load.
	unwanted bool
	users    int    // calls that use the model
	used     uint64 // value of clock when a use last began or ended
}

func newCache[M any](m *Models[M], r *scope.Replica) *cache[M] {
	c := &cache[M]{
		models:  m,
		replica: r,
		metrics: r.Metrics.Models(),
		entries: map[string]*entry[M]{},
		room:    room[M]{max: m.max, occupied: map[*entry[M]]struct{}{}, freed: make(chan struct{})},
		uses:    usage[M]{byCall: map[*scope.Call]*use[M]{}},
		idle:    make(chan struct{}),
	}
	c.unloadCtx, c.cancelUnload = context.WithCancel(identity.ContextWithReplica(context.Background(), c.replica.Component))
	r.OnStop(c.stop)
	return c
}

// get returns the model for use by call until call ends. It loads the model if it is
// not loaded, and blocks until the load or ctx has ended.
func (c *cache[M]) get(ctx context.Context, call *scope.Call, id string) (model M, err error) {
	c.metrics.Asked()
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return model, errStopped
	}
	e := c.entries[id]
	if e != nil && e.state == loaded {
		c.addUseAndUnlock(e, call)
		return e.model, nil
	}
	isNew := e == nil || e.state != loading || e.unwanted
	if isNew {
		e = c.startLocked(ctx, id)
	}
	e.waiting[call]++
	c.mu.Unlock()
	if isNew {
		c.announce() // before the load, so that the router sends further requests for the model here
	}

	select {
	case <-e.done:
	case <-ctx.Done():
		if c.stopWaiting(e, call) {
			return model, context.Cause(ctx)
		}
		<-e.done
	}
	if e.err != nil {
		return model, e.err
	}
	c.mu.Lock()
	c.addUseAndUnlock(e, call)
	return e.model, nil
}

// addUseAndUnlock records that call uses the model until call ends. It releases c.mu.
func (c *cache[M]) addUseAndUnlock(e *entry[M], call *scope.Call) {
	u := c.uses.add(e, call)
	hooked := u.hooked
	u.hooked = true
	c.mu.Unlock()
	if !hooked {
		call.OnEnd(func() { c.release(call) })
	}
}

// release removes the uses of a call that has ended. The models of the call become the
// most recently used ones, in the order in which the call used them.
func (c *cache[M]) release(call *scope.Call) {
	c.mu.Lock()
	c.uses.remove(call)
	changed := c.shrinkLocked()
	c.mu.Unlock()
	if changed {
		c.announce()
	}
}

// stopWaiting records that call no longer waits for the load, and cancels the load if
// no other request waits. It returns false if the load has already ended.
func (c *cache[M]) stopWaiting(e *entry[M], call *scope.Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.state != loading {
		return false
	}
	e.waiting[call]--
	if e.waiting[call] == 0 {
		delete(e.waiting, call)
	}
	if len(e.waiting) == 0 {
		e.unwanted = true
		e.cancel(errUnwanted)
	}
	return true
}

// startLocked adds an entry for the model and starts the goroutine that loads it.
func (c *cache[M]) startLocked(ctx context.Context, id string) *entry[M] {
	e := &entry[M]{
		id:      id,
		done:    make(chan struct{}),
		waiting: map[*scope.Call]int{},
	}
	if old := c.entries[id]; old == nil || old.state != loading { // otherwise e replaces an entry that is already counted
		c.held++
	}
	c.entries[id] = e
	c.shrinkLocked()
	ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.running++
	go c.load(ctx, e)
	return e
}

// waitForRoom adds e to the models in memory. It blocks while another entry with the
// same id is in memory, and while the replica is full but about to free a model. It
// returns the cause of ctx if ctx ends first.
func (c *cache[M]) waitForRoom(ctx context.Context, e *entry[M]) error {
	for {
		c.mu.Lock()
		if ctx.Err() != nil { // e is unwanted or the replica stops; both are set under mu
			c.mu.Unlock()
			return context.Cause(ctx)
		}
		freed := c.room.freed
		waits := !c.room.tryAdd(e)
		c.mu.Unlock()
		if !waits {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
}

// shrinkLocked unloads unused models while too many are held, or all unused models once
// the cache has stopped. It reports whether it has unloaded a model.
func (c *cache[M]) shrinkLocked() (changed bool) {
	for c.stopped || c.models.max > 0 && c.held > c.models.max {
		var oldest *entry[M]
		for _, e := range c.entries {
			if e.state == loaded && e.users == 0 && (oldest == nil || e.used < oldest.used) {
				oldest = e
			}
		}
		if oldest == nil {
			return changed
		}
		c.held--
		c.unloadLocked(oldest)
		changed = true
	}
	return changed
}

func (c *cache[M]) unloadLocked(e *entry[M]) {
	e.state = unloading
	c.running++
	go c.unload(e)
}

// load loads a model. The result is handled in deferred calls, because the user's
// function may end the goroutine by runtime.Goexit.
func (c *cache[M]) load(ctx context.Context, e *entry[M]) {
	err := errGoexit
	defer func() {
		c.finishLoad(e, err)
		e.cancel(nil)
		c.finishGoroutine()
	}()
	if err = c.waitForRoom(ctx, e); err != nil {
		return
	}
	err = errGoexit
	ctx, span := c.replica.Tracing.StartModelLoad(ctx, e.id)
	// The load has a call of its own. Models that the load function uses are held for this
	// call until the load ends, even if the request that started it ends earlier.
	call := scope.NewCall(c.replica)
	began := time.Now()
	defer func() {
		call.End()
		span.EndWork(err)
		c.metrics.Loaded(time.Since(began), err != nil, span.Context())
	}()
	e.model, err = c.invoke(scope.ContextWithCall(ctx, call), e.id)
}

// invoke calls the user's load function and returns a panic as an error.
func (c *cache[M]) invoke(ctx context.Context, id string) (model M, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.panicked(ctx, "load of a model panicked", id, v)
		}
	}()
	model, err = c.models.load(ctx, id)
	return model, scope.Touch(err)
}

// finishLoad records the result of a load and closes e.done.
func (c *cache[M]) finishLoad(e *entry[M], err error) {
	c.mu.Lock()
	if err != nil {
		e.err = fmt.Errorf("load model %q: %w", e.id, err)
		if c.entries[e.id] == e {
			c.held--
		}
		c.dropLocked(e)
	} else {
		e.state = loaded
		for call := range e.waiting {
			c.uses.add(e, call) // so that shrinkLocked does not unload the model
		}
		c.uses.touch(e)
		if c.entries[e.id] != e {
			c.unloadLocked(e) // the load was cancelled, and a newer entry waits for the memory of e
		}
		e.unwanted = false
		c.shrinkLocked()
		c.room.signal() // e is no longer unwanted, so waiting loads must check again
	}
	c.mu.Unlock()
	close(e.done)
	c.announce()
}

// unload calls the user's unload function and removes the entry.
func (c *cache[M]) unload(e *entry[M]) {
	began := time.Now()
	defer func() {
		if v := recover(); v != nil {
			_ = c.panicked(c.unloadCtx, "unload of a model panicked", e.id, v) // unload has no caller for the error
		}
		c.metrics.Unloaded(time.Since(began))
		c.mu.Lock()
		c.dropLocked(e)
		c.mu.Unlock()
		c.announce()
		c.finishGoroutine()
	}()
	c.announce()
	if c.models.unload != nil {
		c.models.unload(c.unloadCtx, e.id, e.model)
	}
}

// dropLocked removes an entry that occupies no memory any more.
func (c *cache[M]) dropLocked(e *entry[M]) {
	e.state = gone
	if c.entries[e.id] == e {
		delete(c.entries, e.id)
	}
	c.room.remove(e)
}

func (c *cache[M]) finishGoroutine() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.closeIdleLocked()
}

// closeIdleLocked closes idle, once, if the cache has stopped and no goroutine runs. A
// model that a call still uses after stop has returned is unloaded later, and stop does
// not wait for it.
func (c *cache[M]) closeIdleLocked() {
	if !c.stopped || c.running > 0 {
		return
	}
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

// stop cancels the loads and unloads all models. It blocks, at most until ctx ends.
func (c *cache[M]) stop(ctx context.Context) {
	c.mu.Lock()
	c.stopped = true
	for _, e := range c.entries {
		if e.state == loading {
			e.cancel(errStopped)
		}
	}
	c.shrinkLocked()
	c.closeIdleLocked()
	c.mu.Unlock()
	defer c.cancelUnload()
	select {
	case <-c.idle:
	case <-ctx.Done():
	}
}

// panicked logs a panic of user code and returns it as an error.
func (c *cache[M]) panicked(ctx context.Context, msg, id string, v any) error {
	return c.replica.Panicked(ctx, msg, v, slog.String("model_id", id))
}
