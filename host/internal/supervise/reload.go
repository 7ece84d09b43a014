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
	ended chan struct{}     // closed when Plugin.Run returns, which takes the requests
}

// ask makes a request and blocks until it is answered, ctx ends, or the plugin stops.
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

// all returns first and the other requests that wait now. One replacement answers all of
// them.
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

// reloadError returns Reload's error for a plugin that does not start.
func reloadError(name string, err error) error {
	if err == nil {
		return nil
	}
	return &PluginError{name, "does not start", err}
}

// answerAll answers requests with an error or nil. It does not block.
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
