package multiplexing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

var (
	errUnwanted = fmt.Errorf("nobody waits for the model any more: %w", context.Canceled)
	errStopped  = errors.New("multiplexing: the replica has stopped")
)

// cache is the models of one replica.
//
// A model is loaded and unloaded by a goroutine each, which stop waits for. Held
// are the models that are being loaded and those that are there. Where there are
// too many, those that nobody uses go, least recently used first; while all are
// in use, none does.
type cache[M any] struct {
	models  *Models[M]
	replica *scope.Replica
	metrics *metrics.Models
	// life is the context of unloads. It ends with the time that stop has.
	life context.Context //nolint:containedctx // it is the cache's own
	die  context.CancelFunc

	mu      sync.Mutex
	entries map[string]*entry[M]   // by model id; the newest of each
	held    int                    // of entries those that are loading or loaded, or wait for that
	inside  map[*entry[M]]struct{} // in memory, perhaps: from the call of load until unload has returned
	roomier chan struct{}          // closed, and made anew, when those who wait for room are to look again
	uses    map[*scope.Call]*use[M]
	clock   uint64 // counts uses
	running int    // goroutines
	stopped bool
	idle    chan struct{} // closed when stopped and nothing runs
}

// state is where an entry is.
type state uint8

const (
	loading state = iota
	loaded
	unloading
	gone
)

// entry is one model, from the first request for it until it is unloaded.
type entry[M any] struct {
	id   string
	done chan struct{} // closed when it is loaded or will not be

	model M     // written before done is closed
	err   error // written before done is closed

	// The cache's mu guards these.
	state   state
	cancel  context.CancelCauseFunc // of the load
	waiting map[*scope.Call]int     // while it is loading
	// unwanted: the load was cancelled, because nobody waited. Who comes now has
	// it loaded anew.
	unwanted bool
	users    int    // calls that use it
	used     uint64 // by the clock, when a use of it began or ended
}

// use is what one call uses.
type use[M any] struct {
	entries []*entry[M]
	told    bool         // we will be told when the call ends
	room    [1]*entry[M] // for most calls' entries
}

func newCache[M any](m *Models[M], r *scope.Replica) *cache[M] {
	c := &cache[M]{
		models:  m,
		replica: r,
		metrics: r.Metrics.Models(),
		entries: map[string]*entry[M]{},
		inside:  map[*entry[M]]struct{}{},
		roomier: make(chan struct{}),
		uses:    map[*scope.Call]*use[M]{},
		idle:    make(chan struct{}),
	}
	c.life, c.die = context.WithCancel(identity.ContextWithReplica(context.Background(), c.replica.Component))
	r.OnStop(c.stop)
	return c
}

// get gives the model to call, until that ends.
func (c *cache[M]) get(ctx context.Context, call *scope.Call, id string) (model M, err error) {
	c.metrics.Asked()
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return model, errStopped
	}
	e := c.entries[id]
	if e != nil && e.state == loaded {
		c.useAndUnlock(e, call)
		return e.model, nil
	}
	isNew := e == nil || e.state != loading || e.unwanted
	if isNew {
		e = c.startLocked(ctx, id)
	}
	e.waiting[call]++
	c.mu.Unlock()
	if isNew {
		c.announce() // early, so that others who want it come here
	}

	select {
	case <-e.done:
	case <-ctx.Done():
		if c.leave(e, call) {
			return model, context.Cause(ctx)
		}
		<-e.done
	}
	if e.err != nil {
		return model, e.err
	}
	c.mu.Lock()
	c.useAndUnlock(e, call)
	return e.model, nil
}

// useAndUnlock notes that call uses the model, until it ends.
func (c *cache[M]) useAndUnlock(e *entry[M], call *scope.Call) {
	u := c.useLocked(e, call)
	told := u.told
	u.told = true
	c.mu.Unlock()
	if !told {
		call.OnEnd(func() { c.release(call) })
	}
}

func (c *cache[M]) useLocked(e *entry[M], call *scope.Call) *use[M] {
	c.touchLocked(e)
	u := c.uses[call]
	if u == nil {
		u = new(use[M])
		u.entries = u.room[:0]
		c.uses[call] = u
	}
	if !slices.Contains(u.entries, e) {
		u.entries = append(u.entries, e)
		e.users++
	}
	return u
}

// touchLocked makes e the one that was used last.
func (c *cache[M]) touchLocked(e *entry[M]) {
	c.clock++
	e.used = c.clock
}

// release notes that call has ended: its models were used last now, in the order
// in which they were.
func (c *cache[M]) release(call *scope.Call) {
	c.mu.Lock()
	entries := c.uses[call].entries
	delete(c.uses, call)
	slices.SortFunc(entries, func(a, b *entry[M]) int { return cmp.Compare(a.used, b.used) })
	for _, e := range entries {
		e.users--
		c.touchLocked(e)
	}
	changed := c.shrinkLocked()
	c.mu.Unlock()
	if changed {
		c.announce()
	}
}

// leave notes that call does not wait any more, and reports whether it did: if
// not, the load is over.
func (c *cache[M]) leave(e *entry[M], call *scope.Call) bool {
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

// startLocked has the model loaded, when there is room.
func (c *cache[M]) startLocked(ctx context.Context, id string) *entry[M] {
	e := &entry[M]{
		id:      id,
		done:    make(chan struct{}),
		waiting: map[*scope.Call]int{},
	}
	if old := c.entries[id]; old == nil || old.state != loading { // else e takes its place
		c.held++
	}
	c.entries[id] = e
	c.shrinkLocked()
	ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.running++
	go c.load(ctx, e)
	return e
}

// enter has e take the room of a model, unless nobody waits for it any more. It
// blocks while one with its id is in memory, and while there is no room but some
// is about to be free.
func (c *cache[M]) enter(ctx context.Context, e *entry[M]) error {
	for {
		c.mu.Lock()
		if ctx.Err() != nil { // as e is unwanted, or the replica stops: both are so under mu
			c.mu.Unlock()
			return context.Cause(ctx)
		}
		roomier := c.roomier
		waits := c.mustWaitLocked(e)
		if !waits {
			c.inside[e] = struct{}{}
		}
		c.mu.Unlock()
		if !waits {
			return nil
		}
		select {
		case <-roomier:
		case <-ctx.Done():
		}
	}
}

// mustWaitLocked: what is unloaded will be gone, and so will a load that nobody
// waits for, if its function heeds that. Where all the others are in use, one
// more is loaded all the same.
func (c *cache[M]) mustWaitLocked(e *entry[M]) bool {
	full := c.models.max > 0 && len(c.inside) >= c.models.max
	for other := range c.inside {
		if other.id == e.id || full && (other.state == unloading || other.unwanted) {
			return true
		}
	}
	return false
}

// roomierLocked has those who wait for room look again.
func (c *cache[M]) roomierLocked() {
	close(c.roomier)
	c.roomier = make(chan struct{})
}

// shrinkLocked has models unloaded that are too many and that nobody uses, and
// reports whether there were any.
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

// load loads a model. It is all done in deferred calls, because the function may
// end its goroutine by runtime.Goexit.
func (c *cache[M]) load(ctx context.Context, e *entry[M]) {
	err := errGoexit
	defer func() {
		c.loaded(e, err)
		e.cancel(nil)
		c.ended()
	}()
	if err = c.enter(ctx, e); err != nil {
		return
	}
	err = errGoexit
	ctx, span := c.replica.Tracing.StartModelLoad(ctx, e.id)
	// A call of its own: what it calls and holds does not depend on a request that
	// may leave.
	call := scope.NewCall(c.replica)
	began := time.Now()
	defer func() {
		call.End()
		span.EndWork(err)
		c.metrics.Loaded(time.Since(began), err != nil, span.Context())
	}()
	e.model, err = c.invoke(scope.ContextWithCall(ctx, call), e.id)
}

// invoke calls the load function, and makes its panic an error.
func (c *cache[M]) invoke(ctx context.Context, id string) (model M, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.panicked(ctx, "load of a model panicked", id, v)
		}
	}()
	model, err = c.models.load(ctx, id)
	return model, scope.Touch(err)
}

// loaded takes the result of a load.
func (c *cache[M]) loaded(e *entry[M], err error) {
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
			c.useLocked(e, call) // before others can have it unloaded
		}
		c.touchLocked(e)
		if c.entries[e.id] != e {
			c.unloadLocked(e) // it was cancelled, and another is to take its place
		}
		e.unwanted = false
		c.shrinkLocked()
		c.roomierLocked() // who waited for it to be gone waits in vain
	}
	c.mu.Unlock()
	close(e.done)
	c.announce()
}

// unload frees a model.
func (c *cache[M]) unload(e *entry[M]) {
	began := time.Now()
	defer func() {
		if v := recover(); v != nil {
			_ = c.panicked(c.life, "unload of a model panicked", e.id, v) // there is nobody to tell
		}
		c.metrics.Unloaded(time.Since(began))
		c.mu.Lock()
		c.dropLocked(e)
		c.mu.Unlock()
		c.announce()
		c.ended()
	}()
	c.announce()
	if c.models.unload != nil {
		c.models.unload(c.life, e.id, e.model)
	}
}

// dropLocked forgets an entry that holds nothing.
func (c *cache[M]) dropLocked(e *entry[M]) {
	e.state = gone
	if c.entries[e.id] == e {
		delete(c.entries, e.id)
	}
	delete(c.inside, e)
	c.roomierLocked()
}

// ended counts a goroutine that is about to end.
func (c *cache[M]) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.checkIdleLocked()
}

// checkIdleLocked closes idle in its time, once. Models that calls still use when
// the replica has no more time are unloaded later, with nobody waiting for it.
func (c *cache[M]) checkIdleLocked() {
	if !c.stopped || c.running > 0 {
		return
	}
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

// stop cancels loads and unloads models, and waits for both until ctx ends.
func (c *cache[M]) stop(ctx context.Context) {
	c.mu.Lock()
	c.stopped = true
	for _, e := range c.entries {
		if e.state == loading {
			e.cancel(errStopped)
		}
	}
	c.shrinkLocked()
	c.checkIdleLocked()
	c.mu.Unlock()
	defer c.die()
	select {
	case <-c.idle:
	case <-ctx.Done():
	}
}

// panicked logs a panic of user code, once, and gives it as an error.
func (c *cache[M]) panicked(ctx context.Context, msg, id string, v any) error {
	return c.replica.Panicked(ctx, msg, v, slog.String("model_id", id))
}
