package pluginsdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Bounds of the time that the end of a plugin may take. A host may kill the plugin earlier.
const (
	// drainTimeout bounds the end of a plugin after SIGTERM. It is long enough for one
	// Export call with the host's default deadline.
	drainTimeout = 10 * time.Second
	// orphanTimeout bounds the end of a plugin after the end of its host. A plugin must have
	// ended two seconds after its host.
	orphanTimeout = time.Second
)

// plugin is one run of a Spec: it answers the host's calls until the plugin must end. Each
// call must first be admitted by the field calls.
type plugin struct {
	spec Spec
	env  Env
	log  *slog.Logger
	// listening has the flags of a plugin that runs by hand with --listen. It is nil if a
	// host started the plugin.
	listening *listening
	// slots bounds the concurrent calls of all attached hosts together: a running call holds
	// one element. It is nil if a host started the plugin, or if the Spec has no limit.
	slots chan struct{}
	// calls admits and counts calls, and holds the processors and the exporter.
	calls *admission
	// release closes released. A host calls it through go-plugin's controller to end the
	// plugin.
	release  func()
	released chan struct{}
	// draining is closed when the plugin begins to end. Streams that are held open end then.
	draining chan struct{}
	// abort is a context that ends when calls in flight must give up. giveUp ends it.
	abort  context.Context
	giveUp context.CancelCauseFunc
	// stopped is closed when stop has shut the exporter down. stopFault is the error of that,
	// and must be read only after stopped is closed.
	stopped   chan struct{}
	stopFault error
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

// serve answers hosts on the socket until the plugin must end, and then ends the plugin. It
// calls announce once, as soon as the server accepts connections. eof is closed when
// standard input ends; it is nil if standard input is not watched.
func (p *plugin) serve(ctx context.Context, socket *socket, eof <-chan struct{}, announce func() error) (ending, error) {
	server := newServer(p)
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- server.Serve(socket.listener) })
	defer serving.Wait() // Serve returns because end stops the server

	why, err := serverFailed, announce()
	if err == nil {
		why, err = p.wait(ctx, eof, served)
		p.log.Info("plugin stops", "reason", string(why))
	}
	return why, errors.Join(err, p.end(server, why))
}

// wait blocks until the plugin must end, and returns the reason.
func (p *plugin) wait(ctx context.Context, eof <-chan struct{}, served <-chan error) (ending, error) {
	select {
	case <-ctx.Done():
		return signalled, nil
	case <-p.released:
		return released, nil
	case <-p.env.orphaned.Done():
		return orphaned, nil
	case err := <-served:
		return serverFailed, fmt.Errorf("serve: %w", err)
	case <-eof:
		if p.calls.isStopping() {
			return hostDone, nil
		}
		return hostGone, nil
	}
}

// end refuses new calls, waits for the calls in flight, shuts the exporter down and closes
// the server. why decides how much time this may take. If code of the plugin's author does
// not return in time, end returns without it and leaves its goroutines running.
func (p *plugin) end(server *grpc.Server, why ending) error {
	bound := cmp.Or(p.env.drainTimeout, drainTimeout)
	if p.debugging() {
		bound = debugDrainTimeout
	}
	if why == hostGone || why == orphaned {
		bound = min(bound, orphanTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	// If the host ends while calls in flight are still running, only orphanTimeout is left.
	defer context.AfterFunc(p.env.orphaned, func() { time.AfterFunc(orphanTimeout, cancel) })()

	close(p.draining)
	answered, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(answered)
		server.GracefulStop()
	}()
	go func() { stopped <- p.stop(ctx) }()

	err, inTime := await(ctx, stopped)
	if !inTime {
		err = errors.New("the exporter's shutdown did not end in time")
	}
	select {
	case <-answered:
	case <-ctx.Done():
	}
	server.Stop()
	cancel()
	await(ctx, answered)
	return err
}

// deafGrace is the additional time that a function gets to return after its context has
// ended.
const deafGrace = 100 * time.Millisecond

// await receives a value from c. It returns false if none comes before ctx ends, nor
// within deafGrace after that.
func await[T any](ctx context.Context, c <-chan T) (value T, inTime bool) {
	select {
	case v := <-c:
		return v, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(deafGrace)
	defer timer.Stop()
	select {
	case v := <-c:
		return v, true
	case <-timer.C:
		return value, false
	}
}

// stop refuses further calls, waits for the calls in flight, and shuts the exporter and the
// processors down. Calls in flight have two thirds of the time of ctx, because flush and
// shutdown need the rest. If stop is called again, it waits for the end of the first call.
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

// awaitCalls waits for the calls in flight, until ctx ends. After two thirds of the time of
// ctx it cancels their contexts.
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

// shutdown flushes the exporter, and shuts the exporter and the processors down. If calls
// are still in flight, it does not wait for them, and returns an error with their number.
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
