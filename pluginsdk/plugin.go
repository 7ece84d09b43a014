package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// plugin is one run of a Spec: what the constructors built, and who is inside.
// Calls enter and leave; stop flips the state, waits for those inside, and
// shuts down what was built.
type plugin struct {
	spec Spec
	env  Env
	log  *slog.Logger
	// listening is nil where a host started the plugin; slots then too, which
	// otherwise bound the Export calls of all hosts together, if the Spec does.
	listening *listening
	slots     chan struct{}
	// released is closed when the host lets go of the plugin, by go-plugin's
	// controller; draining when the end begins, for streams that are held open.
	release  func()
	released chan struct{}
	draining chan struct{}
	// abort ends, with a cause, when calls in flight must give up.
	abort     context.Context
	giveUp    context.CancelCauseFunc
	shutDown  chan struct{} // closed when stop is done
	stopFault error         // read after shutDown is closed

	mu       sync.Mutex
	state    state
	pipeline *pipeline     // set once, by Configure
	inside   int           // calls between enter and leave
	empty    chan struct{} // closed when state is stopping and inside is zero
}

// state is where a plugin is in its life. It only grows.
type state int

const (
	described   state = iota // waits for Configure
	configuring              // constructors run
	refused                  // a constructor failed
	ready                    // takes batches
	stopping                 // lets calls finish, or has ended
)

// String names the state for errors.
func (s state) String() string {
	return [...]string{"not configured", "being configured", "refused its configuration", "ready", "stopping"}[s]
}

// codeUnready answers a host that breaks the order of calls. It is final.
const codeUnready = "FAILED_PRECONDITION"

var errStopping = errors.New("plugin is stopping")

func newPlugin(env Env, spec Spec, log *slog.Logger) *plugin {
	p := &plugin{
		spec: spec, env: env, log: log,
		released: make(chan struct{}),
		draining: make(chan struct{}),
		shutDown: make(chan struct{}),
		empty:    make(chan struct{}),
	}
	p.release = sync.OnceFunc(func() { close(p.released) })
	p.abort, p.giveUp = context.WithCancelCause(context.Background())
	return p
}

// enter admits a call in state want, and makes it next. The caller must leave.
func (p *plugin) enter(want, next state) (*pipeline, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == stopping {
		// Another process may take the batch.
		return nil, &wire.Error{Code: wire.CodeRetry, Err: errStopping}
	}
	if p.state != want {
		return nil, &wire.Error{Code: codeUnready, Final: true, Err: fmt.Errorf("plugin is %v, want %v", p.state, want)}
	}
	p.state = next
	p.inside++
	return p.pipeline, nil
}

// configured ends Configure: built is nil where a constructor failed.
func (p *plugin) configured(built *pipeline) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipeline = built
	if p.state != configuring { // stop has come meanwhile, and takes built along
		return
	}
	p.state = ready
	if built == nil {
		p.state = refused
	}
}

func (p *plugin) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside--
	if p.inside == 0 && p.state == stopping {
		close(p.empty)
	}
}

// wasShutDown tells whether stop has begun.
func (p *plugin) wasShutDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == stopping
}

// stop ends the plugin's work, once: calls in flight have two thirds of ctx's
// time, then they are told to give up; the rest is for flush and shutdown.
// Whoever calls it again waits for the first.
func (p *plugin) stop(ctx context.Context) error {
	if !p.beginStop() {
		select {
		case <-p.shutDown:
			return p.stopFault
		case <-ctx.Done():
			return fmt.Errorf("%w: shutdown is not done: %w", errStopping, ctx.Err())
		}
	}
	p.awaitCalls(ctx)
	p.stopFault = p.shutdown(ctx)
	p.giveUp(errStopping)
	close(p.shutDown)
	return p.stopFault
}

// awaitCalls waits for the calls in flight, and tells those that take too long
// to give up.
func (p *plugin) awaitCalls(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		patience := time.AfterFunc(time.Until(deadline)*2/3, func() { p.giveUp(errStopping) })
		defer patience.Stop()
	}
	select {
	case <-p.empty:
	case <-ctx.Done():
		p.giveUp(errStopping)
	}
}

// beginStop flips the state and tells whether this call did.
func (p *plugin) beginStop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == stopping {
		return false
	}
	p.state = stopping
	if p.inside == 0 {
		close(p.empty)
	}
	return true
}

// shutdown ends what was built. Calls that did not give up are named, and left
// behind.
func (p *plugin) shutdown(ctx context.Context) error {
	p.mu.Lock()
	built, inside := p.pipeline, p.inside
	p.mu.Unlock()
	var fault error
	if inside > 0 {
		fault = fmt.Errorf("%d calls in flight did not end in time", inside)
	}
	if built == nil {
		return fault
	}
	return errors.Join(fault, p.flush(ctx, built), p.close(ctx, built))
}

// flush asks the exporter to deliver what it holds back, if it does that.
func (p *plugin) flush(ctx context.Context, built *pipeline) error {
	flusher, ok := built.exporter.(Flusher)
	if !ok {
		return nil
	}
	return p.guard("flush exporter", func() error { return flusher.Flush(ctx) })
}

// close releases exporter and processors, in the reverse of their making.
func (p *plugin) close(ctx context.Context, built *pipeline) error {
	var faults []error
	if built.exporter != nil {
		faults = append(faults, p.guard("shut down exporter", func() error { return built.exporter.Shutdown(ctx) }))
	}
	for i := len(built.stages) - 1; i >= 0; i-- {
		stage := built.stages[i]
		if stopper, ok := stage.processor.(Stopper); ok {
			faults = append(faults, p.guard(fmt.Sprintf("shut down processor %q", stage.name),
				func() error { return stopper.Shutdown(ctx) }))
		}
	}
	return errors.Join(faults...)
}

// guard calls the author's code: its error gets the name of what was done, and
// a panic becomes an error that ends retries, for the batch would do it again.
func (p *plugin) guard(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			p.log.Error(what+": panic", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = &wire.Error{Code: wire.CodePanic, Final: true, Err: fmt.Errorf("%s: panic: %v", what, r)}
		}
	}()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
