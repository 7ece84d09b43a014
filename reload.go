package servetrace

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host"
)

// reloads runs reloads of plugins, or of the apps' settings, in the background, one at a
// time. So the loop that handles signals does not wait for a plugin, or for user code that
// takes a new configuration.
type reloads struct {
	texts  reloadTexts
	reload func(context.Context) error
	log    *slog.Logger
	asked  chan struct{}           // holds a value if a reload was requested and has not begun
	cancel context.CancelCauseFunc // ends the goroutine and the context of a reload
	done   chan struct{}           // closed when the goroutine has ended
}

// reloadTexts has the log messages of a reload: when it begins, when it has failed, when it
// was canceled, when it has succeeded (done), and when it does not end after it was canceled
// (stuck).
type reloadTexts struct{ begin, failed, canceled, done, stuck string }

var (
	ofPlugins = reloadTexts{
		begin:    "reloading plugins",
		failed:   "some plugins stay as they were",
		canceled: "reloading plugins was canceled",
		done:     "the reload of plugins has ended; the lines of each plugin have its result",
		stuck:    "a reload of plugins does not end; the stop continues without it",
	}
	ofApps = reloadTexts{
		begin:    "reloading the applications from the service file",
		failed:   "some applications do not match the service file",
		canceled: "reloading the applications from the service file was canceled",
		done:     "the applications are reloaded from the service file",
		stuck:    "a reload of the applications does not end; the stop continues without it",
	}
)

var errStopping = errors.New("the service stops")

// reloadGrace is the time for which the stop of the service waits for a canceled reload. A
// reload may ignore its context, because it runs user code.
const reloadGrace = time.Second

func startReloads(texts reloadTexts, reload func(context.Context) error, log *slog.Logger) *reloads {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &reloads{texts: texts, reload: reload, log: log, asked: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go func() { // ends when stop is called
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

// ask requests a reload. If a reload is running, another reload follows it, but only one for
// all requests that come meanwhile. ask never blocks.
func (r *reloads) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// run runs one reload and logs its result.
func (r *reloads) run(ctx context.Context) {
	r.log.Info(r.texts.begin)
	err := r.reload(ctx)
	_, unusable := errors.AsType[fileError](err)
	switch {
	case unusable && ctx.Err() == nil:
		r.log.Error("the service file cannot be used; the applications stay as they were", "error", err)
	case err != nil && ctx.Err() == nil:
		r.log.Error(r.texts.failed, reloadErrorArgs(err)...)
	case err != nil:
		r.log.Info(r.texts.canceled, "because", context.Cause(ctx))
	default:
		r.log.Info(r.texts.done)
	}
}

// fileError is the error of a reload for a service file that cannot be read or is invalid.
type fileError struct{ error }

// reloadErrorArgs returns the log arguments for a reload's error. For plugins it returns
// only their names, because the host has already logged the causes.
func reloadErrorArgs(err error) (args []any) {
	var plugins []string
	var rest []error
	var sort func(error)
	sort = func(err error) {
		switch is := err.(type) { //nolint:errorlint // a wrapped error belongs to the text around it
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

// stop cancels the current reload and ends the goroutine. It waits for the goroutine until
// ctx ends, at most for reloadGrace. The error is always nil.
func (r *reloads) stop(ctx context.Context) error {
	r.cancel(errStopping)
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-time.After(reloadGrace):
		r.log.Warn(r.texts.stuck)
	}
	return nil
}
