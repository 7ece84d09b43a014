package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// plugin is one run of a Spec. Each call passes its admission. stop ends the admission,
// waits for the calls in flight, and shuts the pipeline down.
type plugin struct {
	spec Spec
	env  Env
	log  *slog.Logger
	// listening is nil if a host started the plugin. Otherwise slots bounds the concurrent
	// calls of all hosts together. slots is nil if the Spec has no limit.
	listening *listening
	slots     chan struct{}
	calls     *admission
	// release closes released, because go-plugin's controller has asked the plugin to end.
	// draining is closed when the end begins, for streams that are held open.
	release  func()
	released chan struct{}
	draining chan struct{}
	// giveUp ends abort, with a cause. Then calls in flight must return.
	abort     context.Context
	giveUp    context.CancelCauseFunc
	stopped   chan struct{} // closed when stop is done
	stopFault error         // read after stopped is closed
}

var errStopping = errors.New("plugin is stopping")

func newPlugin(env Env, spec Spec, log *slog.Logger) *plugin {
	p := &plugin{
		spec: spec, env: env, log: log,
		calls:    newAdmission(),
		released: make(chan struct{}),
		draining: make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	p.release = sync.OnceFunc(func() { close(p.released) })
	p.abort, p.giveUp = context.WithCancelCause(context.Background())
	return p
}

// stop ends the plugin's work, once. Calls in flight have two thirds of the time of ctx.
// The rest is for flush and shutdown. A second call waits for the first call.
func (p *plugin) stop(ctx context.Context) error {
	if !p.calls.stop() {
		select {
		case <-p.stopped:
			return p.stopFault
		case <-ctx.Done():
			return fmt.Errorf("%w: shutdown is not done: %w", errStopping, ctx.Err())
		}
	}
	p.awaitCalls(ctx)
	p.stopFault = p.shutdown(ctx)
	p.giveUp(errStopping)
	close(p.stopped)
	return p.stopFault
}

// awaitCalls waits for the calls in flight, and makes slow calls give up.
func (p *plugin) awaitCalls(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		patience := time.AfterFunc(time.Until(deadline)*2/3, func() { p.giveUp(errStopping) })
		defer patience.Stop()
	}
	select {
	case <-p.calls.empty:
	case <-ctx.Done():
		p.giveUp(errStopping)
	}
}

// shutdown flushes and closes the pipeline. It returns an error if calls have not ended,
// and abandons them.
func (p *plugin) shutdown(ctx context.Context) error {
	built, inFlight := p.calls.remaining()
	var fault error
	if inFlight > 0 {
		fault = fmt.Errorf("%d calls in flight did not end in time", inFlight)
	}
	if built == nil {
		return fault
	}
	return errors.Join(fault, built.flush(ctx), built.close(ctx))
}
