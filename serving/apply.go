package serving

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reconfigure gives the replicas of a deployment a new user config, one replica
// after the other, while they take calls. config is any value that has a form in
// JSON; nil is none, which the replicas that run are not told of.
//
// It returns nil when every replica has taken it. Where a replica's Reconfigure
// fails, panics, or has not returned when ctx ends, the error says so, and all
// is as it was: those that have taken the new config get the old one again, for
// which they have 10 s. As in Ray Serve, the replica that failed is replaced, for
// it may have taken half of it; unlike there, with the config that last worked,
// and it takes calls until its successor does: no config can stop a service.
//
// Where no replica runs, because none has started yet or their starts have
// failed, the config is for those that start next, and Reconfigure does not wait
// for them. A deployment that is unavailable tries anew.
//
// Safe for concurrent use; changes of a deployment are made one after the other.
func (s *Server) Reconfigure(ctx context.Context, app, deployment string, config any) error {
	a, err := findApp(s.all.apps, app)
	if err != nil {
		return fmt.Errorf("reconfigure: %w", err)
	}
	d, err := a.find(deployment)
	if err != nil {
		return fmt.Errorf("reconfigure: %w", err)
	}
	next, err := newUserConfig(config)
	if err == nil && !next.IsZero() && len(d.locals) == 0 {
		err = errNoReconfigurer
	}
	if err == nil {
		err = s.all.sets[d].changes.apply(ctx, func(w settings) settings { w.config = next; return w })
	}
	if err != nil {
		return fmt.Errorf("reconfigure deployment %q of app %q: %w", deployment, app, err)
	}
	return nil
}

// Apply makes configs what operators say of the apps, in the place of
// [Config.Apps] or what was applied before: what they no longer say is as the
// code has it. Only what differs from before is changed; so what [Reconfigure]
// has set stays until the configs say something else.
//
// A fault in configs, of which the error tells all, changes nothing. User
// configs are taken as Reconfigure says, each deployment by itself; other
// settings hold at once, but for route prefixes, of which a change is an error
// after all else was done. It returns when all is done.
//
// [Reconfigure]: Server.Reconfigure
func (s *Server) Apply(ctx context.Context, configs []AppConfig) error {
	said, prefixes, err := declare(s.all.apps, configs)
	if err != nil {
		return err
	}
	made := make([]error, len(s.all.order))
	var changes sync.WaitGroup
	for i, set := range s.all.order {
		changes.Go(func() { made[i] = set.changes.declare(ctx, said[set.deployment]) })
	}
	changes.Wait()
	errs := []error{errors.Join(made...)}
	for _, a := range s.all.apps {
		if held := s.all.prefixes[a]; prefixes[a] != held {
			errs = append(errs, fmt.Errorf("app %q: the route prefix stays %q until the service is restarted, then it is %q", a.name, held, prefixes[a]))
		}
	}
	return errors.Join(errs...)
}

// changes change the settings of a set, one change at a time. The methods are safe for
// concurrent use.
type changes struct {
	set  *replicaSet
	turn chan struct{} // has one place, for the change under way

	mu       sync.Mutex
	declared settings // by code and service file, at last
}

func newChanges(s *replicaSet, declared settings) *changes {
	return &changes{set: s, turn: make(chan struct{}, 1), declared: declared}
}

// declare applies the difference between next and the settings that were declared before.
func (c *changes) declare(ctx context.Context, next settings) error {
	c.mu.Lock()
	before := c.declared
	c.mu.Unlock()
	if next == before {
		return nil
	}
	err := c.apply(ctx, func(w settings) settings { return w.change(before, next) })
	if err != nil {
		// The config is not in force. The same text must be tried again, so only
		// the rest counts as declared.
		next.config = before.config
		err = fmt.Errorf("app %q: deployment %q: %w", c.set.app, c.set.deployment.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared = next
	return err
}

var errStopped = errors.New("the server is shut down")

// apply changes the settings.
func (c *changes) apply(ctx context.Context, change func(settings) settings) error {
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

// change changes the settings except the user config. It returns the changed user config,
// which the replicas have still to take, and whether it is another.
func (s *replicaSet) change(change func(settings) settings) (config UserConfig, rolls bool, _ error) {
	s.mu.Lock()
	defer s.unlock()
	if s.phase == setStopping {
		return config, false, errStopped
	}
	before, next := s.want, change(s.want)
	config = next.config
	next.config = before.config
	s.want = next
	s.router.limitQueue(next.maxQueued)
	for _, l := range s.replicas {
		l.replica.max.Store(int64(next.maxOngoing))
	}
	s.listLocked()
	if next.replicas != before.replicas && s.starts.down != nil {
		s.clearLocked()
	}
	return config, config != before.config, nil
}

// roll has all replicas take a config, which is the wanted one then.
func (c *changes) roll(ctx context.Context, config UserConfig) error {
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

// next returns a replica that has not taken config yet. If there is none, it makes config
// the wanted one, so that a replica that starts at this moment takes it too.
func (c *changes) next(config UserConfig) *life {
	s := c.set
	s.mu.Lock()
	defer s.unlock()
	for _, l := range s.replicas {
		if l.state == ReplicaRunning && l.config != config && !config.IsZero() {
			return l
		}
	}
	s.want.config = config
	s.clearLocked() // the starts that have failed did so with another config
	return nil
}

// rollBackGrace is how long replicas may take for the way back.
const rollBackGrace = 10 * time.Second

// rollBack gives the wanted config to the replicas that have taken another. A replica that
// had none, or does not take it back, is replaced.
func (c *changes) rollBack(ctx context.Context, config UserConfig) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackGrace) // ctx may have ended
	defer cancel()
	s := c.set
	s.mu.Lock()
	want := s.want.config
	var changed []*life
	for _, l := range s.replicas {
		if l.state == ReplicaRunning && l.config == config {
			changed = append(changed, l)
		}
	}
	s.mu.Unlock()
	for _, l := range changed {
		err := errors.New("it took a user config that others did not, and had none before")
		if !want.IsZero() {
			err = l.reconfigure(ctx, want)
		}
		if err != nil {
			l.supersede(err)
		}
	}
}
