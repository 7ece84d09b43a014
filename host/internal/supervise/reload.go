package supervise

import (
	"context"
	"fmt"
)

// reloads has the requests to replace the process of a plugin, or to start it at once.
// Plugin.Reload and a changed file make requests. The answer to a request is nil, or the
// reason why no new process runs. Safe for concurrent use.
type reloads struct {
	name  string            // name of the plugin
	asked chan chan<- error // a request is the channel for its answer
	ended chan struct{}     // closed when Plugin.Run has returned and takes no more requests
}

// ask requests a new process, and blocks until the request is answered, ctx ends, or
// the plugin stops.
func (r *reloads) ask(ctx context.Context) error {
	answer, asked := make(chan error, 1), r.asked
	for {
		select {
		case asked <- answer:
			asked = nil // now it waits for the answer
		case err := <-answer:
			return err
		case <-r.ended:
			return errStopping
		case <-ctx.Done():
			return fmt.Errorf("reload plugin %q: %w", r.name, context.Cause(ctx))
		}
	}
}

// all returns the request first, and all other requests that wait now, because one
// replacement answers all of them.
func (r *reloads) all(first chan<- error) []chan<- error {
	list := []chan<- error{first}
	for {
		select {
		case another := <-r.asked:
			list = append(list, another)
		default:
			return list
		}
	}
}

// reloadError returns the error of Reload for a plugin that did not start because of
// err. It returns nil if err is nil.
func reloadError(name string, err error) error {
	if err == nil {
		return nil
	}
	return &PluginError{name, "does not start", err}
}

// answerAll answers calls of Reload with err, which may be nil. It does not block,
// because each channel has room for its answer.
func answerAll(asked []chan<- error, err error) {
	for _, c := range asked {
		c <- err
	}
}

// PluginError is Reload's error for one plugin. The Host has logged it.
type PluginError struct {
	// Plugin is the plugin's name in the list.
	Plugin string
	// Op is the result: the plugin does not start, or is not replaced.
	Op string
	// Err is the reason. It is never nil.
	Err error
}

// Error names the plugin, the result and the reason.
func (e *PluginError) Error() string { return fmt.Sprintf("plugin %q %s: %v", e.Plugin, e.Op, e.Err) }

// Unwrap returns Err.
func (e *PluginError) Unwrap() error { return e.Err }
