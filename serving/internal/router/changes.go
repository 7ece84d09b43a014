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
	turn chan struct{} // has a capacity of one, and holds a value during a change

	mu       sync.Mutex
	declared Settings // the settings that were declared last, by code and service file
}

// Declare applies the difference between next and the settings that were declared before.
func (c *Changes) Declare(ctx context.Context, next Settings) error {
	c.mu.Lock()
	before := c.declared
	c.mu.Unlock()
	if next == before {
		return nil
	}
	err := c.apply(ctx, func(w Settings) Settings { return w.change(before, next) })
	if err != nil {
		// The config was not applied, and the same config must be tried again. So only the
		// other settings count as declared.
		next.Config = before.Config
		err = fmt.Errorf("app %q: deployment %q: %w", c.set.config.App, c.set.config.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared = next
	return err
}

// Reconfigure sets another user config on the replicas, one after another. If a replica
// fails, all replicas get the old config again, and Reconfigure returns the error.
func (c *Changes) Reconfigure(ctx context.Context, config string) error {
	return c.apply(ctx, func(w Settings) Settings { w.Config = config; return w })
}

var errStopped = errors.New("the server is shut down")

// apply changes the settings.
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

// change changes the settings except the user config. It returns the new user config, which
// the replicas do not have yet. rolls reports whether this config must be rolled out.
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

// roll sets a config on all replicas, one after another. After that, the config is the
// wanted config.
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

// next returns the oldest running replica that does not have config. If there is none, it
// makes config the wanted config, so that a replica that starts at this moment gets it too.
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
	s.clearLocked() // the failed starts used another config
	return nil
}

// rollBackGrace bounds the time in which replicas return to the old config.
const rollBackGrace = 10 * time.Second

// rollBack sets the wanted config on the replicas that have taken config. Such a replica
// is replaced if no config is wanted, or if it refuses the wanted config.
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
