package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Changes change the settings of a ReplicaSet, one change at a time. The methods are
// safe for concurrent use.
type Changes struct {
	set  *ReplicaSet
	turn chan struct{} // a semaphore: has a capacity of one, and holds a value during a change

	mu       sync.Mutex
	declared Settings // argument of the last Declare; at first the settings of New
}

// Declare applies the differences between next and the settings of the previous Declare. So
// a setting that is equal in both keeps a value from Reconfigure.
func (c *Changes) Declare(ctx context.Context, next Settings) error {
	c.mu.Lock()
	before := c.declared
	c.mu.Unlock()
	if next == before {
		return nil
	}
	err := c.apply(ctx, func(w Settings) Settings { return w.change(before, next) })
	if err != nil {
		// The replicas have not taken the user config, and the next Declare must try it again.
		// So all settings except the config count as declared.
		next.Config = before.Config
		err = fmt.Errorf("app %q: deployment %q: %w", c.set.config.App, c.set.config.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared = next
	return err
}

// Reconfigure passes another user config to the replicas, one after another. If a replica
// refuses it, all replicas get the old config again, and Reconfigure returns the error.
func (c *Changes) Reconfigure(ctx context.Context, config string) error {
	return c.apply(ctx, func(w Settings) Settings { w.Config = config; return w })
}

var errStopped = errors.New("the server is shut down")

// apply replaces the settings of the set by the result of change, when no other change runs.
func (c *Changes) apply(ctx context.Context, change func(Settings) Settings) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("another change is under way: %w", context.Cause(ctx))
	}
	config, rolls, err := c.set.change(change)
	if err != nil || !rolls {
		return err
	}
	return c.roll(ctx, config)
}

// change replaces the settings of the set, except the user config, by the result of change.
// It returns the user config in that result. rolls reports whether this config differs from
// the current config, so that it must be passed to the replicas.
func (s *ReplicaSet) change(change func(Settings) Settings) (config string, rolls bool, _ error) {
	s.mu.Lock()
	defer s.unlock()
	if s.phase == setStopping {
		return config, false, errStopped
	}
	before, next := s.want, change(s.want)
	config = next.Config
	next.Config = before.Config
	s.want = next
	s.router.limits(next.MaxOngoing, next.MaxQueued)
	if next.Replicas != before.Replicas && s.starts.down != nil {
		s.clearLocked()
	}
	return config, config != before.Config, nil
}

// roll passes a user config to all running replicas, one after another. If all have taken
// it, it becomes the config of the set, which new replicas get, too.
func (c *Changes) roll(ctx context.Context, config string) error {
	for {
		l := c.next(config)
		if l == nil {
			return nil
		}
		if err := l.reconfigure(ctx, config); err != nil {
			l.supersede(err)
			c.rollBack(ctx, config)
			return err
		}
	}
}

// next returns the oldest running replica that does not have the user config. If there is
// none, next returns nil and makes config the config of the set. It does both under one
// lock, so that a replica that starts at this moment gets the config, too.
func (c *Changes) next(config string) *life {
	s := c.set
	s.mu.Lock()
	defer s.unlock()
	for _, l := range s.replicas.list {
		if l.state == ReplicaRunning && l.config != config && config != "" {
			return l
		}
	}
	s.want.Config = config
	s.clearLocked() // the starts that failed used another config, so this one gets new tries
	return nil
}

// rollBackGrace bounds the time that the replicas have to take the old config again.
const rollBackGrace = 10 * time.Second

// rollBack passes the config of the set to the replicas that have taken config. A replica
// that refuses it is replaced. If the set has no config, all these replicas are replaced,
// because a replica cannot forget a config.
func (c *Changes) rollBack(ctx context.Context, config string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackGrace) // ctx may have ended
	defer cancel()
	s := c.set
	s.mu.Lock()
	want := s.want.Config
	var changed []*life
	for _, l := range s.replicas.list {
		if l.state == ReplicaRunning && l.config == config {
			changed = append(changed, l)
		}
	}
	s.mu.Unlock()
	for _, l := range changed {
		err := errors.New("it took a user config that others did not, and had none before")
		if want != "" {
			err = l.reconfigure(ctx, want)
		}
		if err != nil {
			l.supersede(err)
		}
	}
}
