package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	a, err := findApp(s.apps, app)
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
		err = s.sets[d].apply(ctx, func(w settings) settings { w.config = next; return w })
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
	said, prefixes, err := declare(s.apps, configs)
	if err != nil {
		return err
	}
	made := make([]error, len(s.order))
	var changes sync.WaitGroup
	for i, set := range s.order {
		changes.Go(func() { made[i] = set.declare(ctx, said[set.deployment]) })
	}
	changes.Wait()
	errs := []error{errors.Join(made...)}
	for _, a := range s.apps {
		if held := s.prefixes[a]; prefixes[a] != held {
			errs = append(errs, fmt.Errorf("app %q: the route prefix stays %q until the service is restarted, then it is %q", a.name, held, prefixes[a]))
		}
	}
	return errors.Join(errs...)
}

// declare applies what differs from what was declared before.
func (s *replicaSet) declare(ctx context.Context, next settings) error {
	s.mu.Lock()
	before := s.declared
	s.mu.Unlock()
	if next == before {
		return nil
	}
	err := s.apply(ctx, func(w settings) settings { return w.change(before, next) })
	if err != nil {
		// The config is not in force. That it was declared must not keep the
		// same text from being tried again, so only the rest counts as said.
		next.config = before.config
		err = fmt.Errorf("app %q: deployment %q: %w", s.app, s.deployment.name, err)
	}
	s.mu.Lock()
	s.declared = next
	s.mu.Unlock()
	return err
}

var errStopped = errors.New("the server is shut down")

// apply changes the settings, one change at a time.
func (s *replicaSet) apply(ctx context.Context, change func(settings) settings) error {
	select {
	case s.changing <- struct{}{}:
		defer func() { <-s.changing }()
	case <-ctx.Done():
		return fmt.Errorf("another change is under way: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	if s.stopping {
		s.unlock()
		return errStopped
	}
	before, next := s.want, change(s.want)
	config := next.config
	next.config = before.config
	s.want = next
	s.router.limitQueue(next.maxQueued)
	for _, r := range s.replicas {
		r.max.Store(int64(next.maxOngoing))
	}
	s.listLocked()
	if next.replicas != before.replicas && s.down != nil {
		s.clearLocked()
	}
	s.unlock()
	if config == before.config {
		return nil
	}
	return s.roll(ctx, config)
}

// roll has all replicas take a config, and then it is the one that is wanted.
func (s *replicaSet) roll(ctx context.Context, config UserConfig) error {
	for {
		r := s.next(config)
		if r == nil {
			return nil
		}
		if err := s.reconfigure(ctx, r, config); err != nil {
			s.supersede(r, err)
			s.rollBack(ctx, config)
			return err
		}
	}
}

// next gives a replica that has not taken config yet. Where there is none, it
// makes config the one that is wanted, so that no replica slips through that has
// just started.
func (s *replicaSet) next(config UserConfig) *replica {
	s.mu.Lock()
	defer s.unlock()
	i := slices.IndexFunc(s.replicas, func(r *replica) bool {
		return r.state == ReplicaRunning && r.config != config && !config.IsZero()
	})
	if i >= 0 {
		return s.replicas[i]
	}
	s.want.config = config
	s.clearLocked() // whatever starts have failed, did so with another config
	return nil
}

// rollBackGrace is how long replicas may take for the way back.
const rollBackGrace = 10 * time.Second

// rollBack gives those that have taken a config the one that is wanted again.
// One that had none, or does not take it back, is replaced.
func (s *replicaSet) rollBack(ctx context.Context, config UserConfig) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackGrace) // ctx may have ended
	defer cancel()
	s.mu.Lock()
	want := s.want.config
	var changed []*replica
	for _, r := range s.replicas {
		if r.state == ReplicaRunning && r.config == config {
			changed = append(changed, r)
		}
	}
	s.mu.Unlock()
	for _, r := range changed {
		err := errors.New("it took a user config that others did not, and had none before")
		if !want.IsZero() {
			err = s.reconfigure(ctx, r, want)
		}
		if err != nil {
			s.supersede(r, err)
		}
	}
}

// settings are what holds now.
func (s *replicaSet) settings() settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want
}
