package serving

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/servetrace/servetrace/serving/internal/router"
)

// Reconfigure gives the replicas of a deployment a new user config, one replica after the
// other, while they take calls. config is any value that has a form in JSON. Nil means no
// config; running replicas are not informed of a change to nil.
//
// It returns nil when every replica has taken the config. If a replica's Reconfigure
// fails, panics, or has not returned when ctx ends, the error has the reason, and the old
// config stays in force: replicas that have taken the new one get the old one again, and
// have 10 s to take it. As in Ray Serve, the failed replica is replaced, because it may
// have taken half of the config. Unlike in Ray Serve, its successor gets the config that
// last worked, and the failed replica takes calls until the successor runs. So no config
// can stop a service.
//
// If no replica runs, because none has started yet or their starts have failed, the
// config is for the replicas that start next. Reconfigure does not wait for them. A
// deployment that is unavailable tries to start replicas again.
//
// Reconfigure is safe for concurrent use. Changes of a deployment are made one after the
// other.
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
		err = router.ErrNoReconfigurer
	}
	if err == nil {
		err = d.replicas().Reconfigure(ctx, next.json)
	}
	if err != nil {
		return fmt.Errorf("reconfigure deployment %q of app %q: %w", deployment, app, err)
	}
	return nil
}

// Apply replaces the operators' settings of the apps, from [Config.Apps] or an earlier
// Apply, by configs. A setting that is not in configs becomes the code's setting again.
// Settings that are as before are not touched, so a config of [Reconfigure] stays until
// configs change it.
//
// If configs have faults, nothing changes, and the error has all faults. User configs are
// changed as by Reconfigure, for each deployment by itself. Other settings hold at once,
// except route prefixes: if one differs, Apply returns an error after all other changes.
//
// [Reconfigure]: Server.Reconfigure
func (s *Server) Apply(ctx context.Context, configs []AppConfig) error {
	declared, prefixes, err := declare(s.all.apps, configs)
	if err != nil {
		return err
	}
	made := make([]error, len(s.all.order))
	var changes sync.WaitGroup
	for i, d := range s.all.order {
		changes.Go(func() { made[i] = d.replicas().Declare(ctx, declared[d]) })
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
