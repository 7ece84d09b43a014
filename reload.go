package servetrace

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host"
)

// reloads has the plugins reloaded in the background, one reload at a time, so
// that no signal waits for a plugin.
type reloads struct {
	reload func(context.Context) error
	log    *slog.Logger
	asked  chan struct{} // holds the one that waits
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the last one has ended
}

var errStopping = errors.New("the service stops")

// reloadGrace is how long a reload that was called off may take to end. It
// bounds the stop, should one not heed its context.
const reloadGrace = time.Second

func startReloads(reload func(context.Context) error, log *slog.Logger) *reloads {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &reloads{reload: reload, log: log, asked: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
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
	r.log.Info("reloading plugins")
	switch err := r.reload(ctx); {
	case err != nil && ctx.Err() == nil:
		r.log.Error("some plugins stay as they were", untold(err)...)
	case err != nil:
		r.log.Info("reloading plugins was called off", "because", context.Cause(ctx))
	default:
		r.log.Info("plugins are reloaded")
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
		r.log.Warn("a reload of plugins does not end; the stop goes on without it")
	}
	return nil
}
