package host

import (
	"context"
	"fmt"
)

// Reload has each plugin that this host starts replaced by a new process of
// what its file and its document are now, and each that does not run tried at
// once. It blocks until that is done, or ctx ends. The error says which plugins
// stay as they were, and why.
func (h *Host) Reload(ctx context.Context) error {
	return h.each(func(x *exporter) error {
		if x.entry.attached {
			return nil
		}
		answer := make(chan error, 1)
		select {
		case x.reload <- answer:
		case <-x.ctx.Done():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("reload plugin %q: %w", x.entry.name, context.Cause(ctx))
		}
		select {
		case err := <-answer:
			return err
		case <-ctx.Done():
			return fmt.Errorf("reload plugin %q: %w", x.entry.name, context.Cause(ctx))
		}
	})
}

// upgrade puts a new process beside the old one and gives the one that goes on.
func (x *exporter) upgrade(old *life) (*life, error) {
	a := x.newAttempt()
	next, err := x.begin(x.ctx, a)
	if err != nil {
		return old, fmt.Errorf("plugin %q stays as it is: %w", x.entry.name, err)
	}
	old.finish()
	x.shutdownPlugin(old.link)
	if err := old.end(); err != nil {
		x.log.Warn("the plugin's old process did not end", "error", err)
	}
	x.ready(next)
	next.send()
	return next, nil
}
