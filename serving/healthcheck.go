package serving

import (
	"context"
	"fmt"
	"time"

	"github.com/servetrace/servetrace/tracing"
)

// unhealthyAfter is how many checks in a row must fail, as in Ray.
const unhealthyAfter = 3

// checks looks after the health of one replica, in its goroutine.
type checks struct {
	set     *replicaSet
	replica *replica
	passed  bool // the first one did
	// late is a check that did not come back in time; nil for none. The next
	// waits for it, so that there is one at a time however long they hang.
	late <-chan error
}

// first is the check before the first call.
func (c *checks) first() error {
	if err := c.check(); err != nil {
		return fmt.Errorf("first health check: %w", err)
	}
	c.passed = true
	return nil
}

// run checks until the replica is to stop, or is found unhealthy.
func (c *checks) run() {
	if !c.replica.hasChecker() {
		return
	}
	s, r := c.set, c.replica
	failures := 0
	for c.pause() {
		err := c.check()
		switch {
		case r.life.Err() != nil:
			return
		case err == nil && failures > 0:
			s.log.Info("replica passes its health check again", tracing.LogReplica, r.info.ReplicaID.UniqueID, "failures", failures)
			failures = 0
		case err == nil:
		default:
			failures++
			if failures == 1 {
				s.log.Warn("replica fails its health check", tracing.LogReplica, r.info.ReplicaID.UniqueID, "error", err)
			}
		}
		if failures >= unhealthyAfter {
			s.condemn(r, fmt.Errorf("%d health checks in a row have failed: %w", failures, err))
			return
		}
	}
}

// pause waits until the next check is due; false where there is to be none.
func (c *checks) pause() bool {
	timer := time.NewTimer(c.set.settings().healthPeriod)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.replica.life.Done():
		return false
	}
}

// check asks all values of the replica.
func (c *checks) check() error {
	if !c.replica.hasChecker() {
		return nil
	}
	began := time.Now()
	err := c.ask(c.set.settings().healthTimeout)
	if c.replica.life.Err() == nil {
		c.replica.scope.Metrics.Checked(time.Since(began), err == nil)
	}
	return err
}

func (c *checks) ask(timeout time.Duration) error {
	if len(c.late) > 0 {
		c.late = nil // it has come back, and was counted
	}
	done := c.late
	if done == nil {
		done = c.set.begin(c.replica.life, c.replica, "health check", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return c.replica.checkHealth(ctx)
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
	case <-c.replica.life.Done():
		return context.Cause(c.replica.life)
	}
}

// hasChecker reports whether a value of the replica knows its health.
func (r *replica) hasChecker() bool {
	for _, value := range r.values {
		if _, is := value.(HealthChecker); is {
			return true
		}
	}
	return false
}

func (r *replica) checkHealth(ctx context.Context) error {
	for _, value := range r.values {
		if checker, is := value.(HealthChecker); is {
			if err := checker.CheckHealth(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
