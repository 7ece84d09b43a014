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
// Each load and each unload runs on its own goroutine, and stop waits for these goroutines.
// A model counts as held while it is loading or loaded. If more models are held than the
// limit, the cache unloads models that no call uses, the least recently used model first.
type cache[M any] struct {
	models  *Models[M]
	replica *scope.Replica
	metrics *metrics.Models
	// unloadCtx is the context of the unload function. It ends when stop returns.
	unloadCtx    context.Context    //nolint:containedctx // it is the cache's own
	cancelUnload context.CancelFunc // ends unloadCtx

	mu      sync.Mutex
	entries map[string]*entry[M] // the newest entry of each model id
	held    int                  // number of entries that are loading or loaded
	room    room[M]              // bounds the models in memory
	uses    usage[M]             // the calls that use models
	running int                  // number of goroutines that load or unload
	stopped bool                 // set by stop
	idle    chan struct{}        // closed when stopped is set and running is 0
}

// state is the stage of an entry's life.
type state uint8

const (
	loading state = iota
	loaded
	unloading
	gone
)

// entry is a model, from the first request that needs it loaded until it is unloaded.
type entry[M any] struct {
	id   string
	done chan struct{} // closed when the load has succeeded or failed

	model M     // result of the load; written before done is closed
	err   error // error of the load, or nil; written before done is closed

	// The fields below are guarded by the cache's mu.
	state   state
	cancel  context.CancelCauseFunc // cancels the load
	waiting map[*scope.Call]int     // number of requests that wait for the load, by call
	// unwanted is set if the load was cancelled because no request waited for it any more. The
	// next request then starts a new load, in a new entry.
	unwanted bool
	users    int    // number of calls that use the model
	used     uint64 // value of usage.clock when a use last began or ended
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

// get returns the model with the id, which stays loaded until call ends. If the model is not
// loaded, get starts a load or joins a load that runs. It blocks until the load or ctx has
// ended.
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

// addUseAndUnlock records that call uses the model until call ends. The caller must hold
// c.mu, which addUseAndUnlock releases.
func (c *cache[M]) addUseAndUnlock(e *entry[M], call *scope.Call) {
	u := c.uses.add(e, call)
	hooked := u.hooked
	u.hooked = true
	c.mu.Unlock()
	if !hooked {
		call.OnEnd(func() { c.release(call) })
	}
}

// release records that a call that has ended uses no models any more, and unloads models if
// too many are held.
func (c *cache[M]) release(call *scope.Call) {
	c.mu.Lock()
	c.uses.remove(call)
	changed := c.shrinkLocked()
	c.mu.Unlock()
	if changed {
		c.announce()
	}
}

// stopWaiting records that a request of call no longer waits for the load of e. If no other
// request waits, it cancels the load. It returns false if the load has already ended.
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

// startLocked adds an entry for the model and starts the goroutine that loads the model. The
// load gets the values of ctx.
func (c *cache[M]) startLocked(ctx context.Context, id string) *entry[M] {
	e := &entry[M]{
		id:      id,
		done:    make(chan struct{}),
		waiting: map[*scope.Call]int{},
	}
	if old := c.entries[id]; old == nil || old.state != loading { // otherwise e replaces old, which held includes already
		c.held++
	}
	c.entries[id] = e
	c.shrinkLocked()
	ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.running++
	go c.load(ctx, e)
	return e
}

// waitForRoom adds e to the models in memory. It blocks while the same model is in memory
// from an earlier load, and while the replica is full but a model is being unloaded. If ctx
// ends first, it returns the cause.
func (c *cache[M]) waitForRoom(ctx context.Context, e *entry[M]) error {
	for {
		c.mu.Lock()
		if ctx.Err() != nil { // no request waits for e any more, or the replica stops
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

// shrinkLocked begins to unload models that no call uses until no more models are held than
// the limit. If the cache has stopped, it unloads all of them. It reports whether it unloads
// a model.
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

// unloadLocked starts the goroutine that unloads the model of e.
func (c *cache[M]) unloadLocked(e *entry[M]) {
	e.state = unloading
	c.running++
	go c.unload(e)
}

// load loads the model of e, when there is room for it. The work after the call is deferred,
// because the user's load function may end the goroutine by runtime.Goexit.
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
	// The context of the load belongs to a call of its own. Models that the load function uses
	// are held until this call ends, even if the request that started the load ends before.
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

// finishLoad records the result of the load of e and closes e.done. A nil err means that the
// model is loaded.
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
			c.unloadLocked(e) // the load succeeded although it was cancelled; a newer entry waits until e is unloaded
		}
		e.unwanted = false
		c.shrinkLocked()
		c.room.signal() // loads may wait because e was unwanted, so they must check again
	}
	c.mu.Unlock()
	close(e.done)
	c.announce()
}

// unload calls the user's unload function for the model of e, and removes e.
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

// dropLocked removes an entry after its model has left the memory.
func (c *cache[M]) dropLocked(e *entry[M]) {
	e.state = gone
	if c.entries[e.id] == e {
		delete(c.entries, e.id)
	}
	c.room.remove(e)
}

// finishGoroutine records the end of a goroutine that has loaded or unloaded a model.
func (c *cache[M]) finishGoroutine() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.closeIdleLocked()
}

// closeIdleLocked closes idle if the cache has stopped and no goroutine runs. It may be
// called again after that, because a model that a call still used during stop is unloaded
// later.
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

// stop cancels all loads and unloads all models. It blocks until they have ended, at most
// until ctx ends.
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

// panicked logs the panic v of user code that ran for the model with the id. It returns the
// panic as an error.
func (c *cache[M]) panicked(ctx context.Context, msg, id string, v any) error {
	return c.replica.Panicked(ctx, msg, v, slog.String("model_id", id))
}
