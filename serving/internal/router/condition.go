package router

import (
	"errors"
	"log/slog"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/tracing"
)

// condition logs the faults and the changes of state of a deployment. The set's mu guards it.
type condition struct {
	state DeploymentState // at the last call of note
	fault error           // last fault since the deployment was healthy; nil for none
	lines []func()        // each writes a log line; they are called later, without the lock
}

// blame records the fault err of a replica. It logs the fault with text, unless the last
// fault has the same message.
func (c *condition) blame(log *slog.Logger, replica, text string, err error) {
	logged := c.fault != nil && c.fault.Error() == err.Error()
	c.fault = err
	if logged {
		return
	}
	args := []any{tracing.LogReplica, replica, "error", err}
	if p, ok := errors.AsType[*tracing.PanicError](err); ok {
		args = append(args, "stack", string(p.Stack))
	}
	c.lines = append(c.lines, func() { log.Warn(text, args...) })
}

// note records the state, and logs each change of the state. For a deployment without
// constructors it logs nothing, because such a deployment is always healthy.
func (c *condition) note(log *slog.Logger, state DeploymentState, replicas int, down *cause.DeploymentUnavailableError, constructs bool) {
	before := c.state
	if state == before {
		return
	}
	c.state = state
	switch state {
	case DeploymentHealthy:
		c.fault = nil
		if constructs {
			c.lines = append(c.lines, func() { log.Info("deployment is healthy", "replicas", replicas, "before", before.String()) })
		}
	case DeploymentUnavailable:
		c.lines = append(c.lines, func() {
			log.Error("deployment is unavailable: its replicas do not start; its requests fail until it is reconfigured, or the service is restarted",
				"tries", down.Tries, "error", down.Reason)
		})
	case DeploymentUpdating, DeploymentUnhealthy, DeploymentStopping:
		// No line, because blame has logged the fault, or the operator has asked for the change.
	}
}

// takeLines returns the lines to write, and forgets them.
func (c *condition) takeLines() []func() {
	lines := c.lines
	c.lines = nil
	return lines
}
