package supervise

import (
	"context"
	"time"
)

// openCalls are the calls to a plugin that have not ended. Each channel is closed when
// its call ends. Safe for concurrent use.
type openCalls struct{ running guardedList[chan struct{}] }

// begin adds a call, and returns the function that ends it.
func (c *openCalls) begin() (end func()) {
	call := make(chan struct{})
	c.running.add(call)
	return func() {
		c.running.remove(call)
		close(call)
	}
}

// wait blocks until all calls that were in progress at its start have ended. It returns
// early after the duration most, or if ctx ends.
func (c *openCalls) wait(ctx context.Context, most time.Duration) {
	over := time.NewTimer(most)
	defer over.Stop()
	for _, call := range c.running.all() {
		select {
		case <-call:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
