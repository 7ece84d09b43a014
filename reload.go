package servetrace

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host"
)

// reloads has something reloaded in the background, one reload at a time, so that
// no signal waits for a plugin, or for what user code does with a new config.
type reloads struct {
	what   reloadTexts
	reload func(context.Context) error
	log    *slog.Logger
	asked  chan struct{} // holds the one that waits
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the last one has ended
}

// reloadTexts are what the log says of a reload: as it begins, has failed, was
// called off, has ended, and does not end though it was called off.
type reloadTexts struct{ begin, failed, calledOff, done, stuck string }

var (
	ofPlugins = reloadTexts{
		begin:     "reloading plugins",
		failed:    "some plugins stay as they were",
		calledOff: "reloading plugins was called off",
		done:      "plugins are reloaded",
		stuck:     "a reload of plugins does not end; the stop goes on without it",
	}
	ofApps = reloadTexts{
		begin:     "reading the service file for its applications",
		failed:    "the applications are not as the service file says",
		calledOff: "reading the service file for its applications was called off",
		done:      "the applications are as the service file says",
		stuck:     "an application does not take the service file; the stop goes on without it",
	}
)

var errStopping = errors.New("the service stops")

// reloadGrace is how long a reload that was called off may take to end. It
// bounds the stop, should one not heed its context.
const reloadGrace = time.Second

func startReloads(what reloadTexts, reload func(context.Context) error, log *slog.Logger) *reloads {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &reloads{what: what, reload: reload, log: log, asked: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go func() { // ends by stop
		defer close(r.done)
		for {
			select {
			case <-r.asked:
				r.run(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return r
}

// ask has a reload begin, or follow the one that runs. Any number of times that
// it is asked meanwhile is once: the next reads everything anew. It never
// blocks.
func (r *reloads) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

func (r *reloads) run(ctx context.Context) {
	r.log.Info(r.what.begin)
	switch err := r.reload(ctx); {
	case err != nil && ctx.Err() == nil:
		r.log.Error(r.what.failed, untold(err)...)
	case err != nil:
		r.log.Info(r.what.calledOff, "because", context.Cause(ctx))
	default:
		r.log.Info(r.what.done)
	}
}

// untold is what a line of the log says of a reload's error: of plugins whose
// cause the host has logged, the names, and the rest as it is.
func untold(err error) (args []any) {
	var plugins []string
	var rest []error
	var sort func(error)
	sort = func(err error) {
		switch is := err.(type) { //nolint:errorlint // what is wrapped belongs to the text around it
		case *host.PluginError:
			plugins = append(plugins, is.Plugin)
		case interface{ Unwrap() []error }:
			for _, one := range is.Unwrap() {
				sort(one)
			}
		default:
			rest = append(rest, err)
		}
	}
	sort(err)
	if plugins != nil {
		args = append(args, "plugins", strings.Join(plugins, ", "))
	}
	if rest != nil {
		args = append(args, "error", errors.Join(rest...))
	}
	return args
}

// stop calls off what runs and waits for it, for a moment at most.
func (r *reloads) stop(ctx context.Context) error {
	r.cancel(errStopping)
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-time.After(reloadGrace):
		r.log.Warn(r.what.stuck)
	}
	return nil
}
