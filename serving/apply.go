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
// It returns nil when every replica has taken the config. A replica refuses the config if
// its [Reconfigurer] fails, panics, or has not returned when ctx ends. The error then has
// the reason, and the old config stays in force: the replicas that have taken the new
// config get the old config again, within 10 s. As in Ray Serve, the replica that refused
// is replaced, because it may have taken half of the config. Unlike in Ray Serve, its
// successor gets the old config, and the replica takes calls until the successor runs. So
// no config can stop a service.
//
// If no replica runs, because none has started yet or their starts have failed, the
// replicas that start next get the config. Reconfigure does not wait for these starts. A
// deployment that is unavailable tries to start replicas again.
//
// Reconfigure is safe for concurrent use. Changes of a deployment are made one after the
// other.
func (s *Server) Reconfigure(ctx context.Context, app, deployment string, config any) error {
	a, err := findApp(s.deployments.apps, app)
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

// Apply replaces all settings of the operator, which come from [Config.Apps] or an earlier
// Apply, by configs. A setting that is not in configs gets the value of the program again.
// A setting that is the same in the old and the new configs is not touched. So a user
// config from [Reconfigure] stays until configs contain another user config.
//
// If configs have faults, nothing changes, and the error joins all faults. Each deployment
// gets its new user config as by Reconfigure. The other settings take effect at once,
// except route prefixes: if a prefix differs, Apply makes all other changes and returns an
// error.
//
// [Reconfigure]: Server.Reconfigure
func (s *Server) Apply(ctx context.Context, configs []AppConfig) error {
	declared, prefixes, err := declare(s.deployments.apps, configs)
	if err != nil {
		return err
	}
	made := make([]error, len(s.deployments.order))
	var changes sync.WaitGroup
	for i, d := range s.deployments.order {
		changes.Go(func() { made[i] = d.replicas().Declare(ctx, declared[d]) })
	}
	changes.Wait()
	errs := []error{errors.Join(made...)}
	for _, a := range s.deployments.apps {
		if held := s.deployments.prefixes[a]; prefixes[a] != held {
			errs = append(errs, fmt.Errorf("app %q: the route prefix stays %q until the service is restarted, then it is %q", a.name, held, prefixes[a]))
		}
	}
	return errors.Join(errs...)
}
