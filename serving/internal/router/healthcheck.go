package router

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/servetrace/servetrace/tracing"
)

// unhealthyAfter is the number of failed checks in a row after which a replica is
// unhealthy, as in Ray.
const unhealthyAfter = 3

// checks makes the health checks of one replica. All its methods run on one goroutine.
type checks struct {
	life   *life
	passed bool // the first check has passed
	// late gets the result of a check that has not returned in time. It is nil if there is no
	// such check. The next check waits for it, so that only one check runs at a time.
	late <-chan error
}

// first makes the check that must pass before the replica takes calls.
func (c *checks) first() error {
	if err := c.check(); err != nil {
		return fmt.Errorf("first health check: %w", err)
	}
	c.passed = true
	return nil
}

// run makes checks until the replica must stop, or is found unhealthy.
func (c *checks) run() {
	if !c.life.replica.hasChecker() {
		return
	}
	l, log := c.life, c.life.set.log
	failures := 0
	for c.pause() {
		err := c.check()
		switch {
		case l.ctx.Err() != nil:
			return
		case err == nil && failures > 0:
			log.Info("replica passes its health check again", tracing.LogReplica, l.uniqueID(), "failures", failures)
			failures = 0
		case err == nil:
		default:
			failures++
			if failures == 1 {
				log.Warn("replica fails its health check", tracing.LogReplica, l.uniqueID(), "error", err)
			}
		}
		if failures >= unhealthyAfter {
			l.condemn(fmt.Errorf("%d health checks in a row have failed: %w", failures, err))
			return
		}
	}
}

// pause waits until the next check is due. It returns false if the replica must stop.
func (c *checks) pause() bool {
	timer := time.NewTimer(c.life.set.settings().HealthPeriod)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.life.ctx.Done():
		return false
	}
}

// check makes a check and counts it in the metrics. A replica without a HealthChecker always
// passes.
func (c *checks) check() error {
	if !c.life.replica.hasChecker() {
		return nil
	}
	began := time.Now()
	err := c.ask(c.life.set.settings().HealthTimeout)
	if c.life.ctx.Err() == nil {
		c.life.replica.scope.Metrics.Checked(time.Since(began), err == nil)
	}
	return err
}

// ask runs the user's CheckHealth methods, at most for timeout, and returns their error. If
// the previous run has not returned yet, ask waits for it and starts no other run.
func (c *checks) ask(timeout time.Duration) error {
	if len(c.late) > 0 {
		c.late = nil // the late check has returned meanwhile; it was counted as failed before
	}
	done := c.late
	if done == nil {
		done = c.life.set.hooks.begin(c.life.ctx, c.life.replica, "health check", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return c.life.replica.checkHealth(ctx)
		})
	}
	c.late = done
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		c.late = nil
		return err
	case <-timer.C:
		return fmt.Errorf("health check has not returned within %v", timeout)
	case <-c.life.ctx.Done():
		return context.Cause(c.life.ctx)
	}
}

func (r *Replica) hasChecker() bool {
	return slices.ContainsFunc(r.values, func(v value) bool { return v.CheckHealth != nil })
}

func (r *Replica) checkHealth(ctx context.Context) error {
	for _, v := range r.values {
		if v.CheckHealth == nil {
			continue
		}
		if err := v.CheckHealth(ctx); err != nil {
			return err
		}
	}
	return nil
}
