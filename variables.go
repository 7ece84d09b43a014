package servetrace

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/settings"
)

// describePause is the interval at which awaitPlugins checks the plugins.
const describePause = 50 * time.Millisecond

// watchVariables logs warnings for variables in environ that look like settings
// although no code reads them. A plugin may declare any variable, so it waits until
// each plugin has been ready, or its start timeout has passed. If there is nothing to
// warn of, it starts no goroutine.
func (s *service) watchVariables(environ []string) {
	unread := settings.Unread(environ, readSettings, s.cfg.Host.PluginEnv)
	if len(unread) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.cfg.Host.StartTimeout, host.DefaultStartTimeout))
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with the closer
		defer close(done)
		s.awaitPlugins(ctx)
		used := s.usedByPlugins()
		select {
		case <-stopping:
			return
		default:
		}
		unread = slices.DeleteFunc(unread, func(v settings.Variable) bool { return slices.Contains(used, v.Name) })
		for _, warning := range settings.Warnings(unread, "neither the service nor a running plugin reads this variable") {
			s.log.Warn("setting is not used", "setting", warning)
		}
	}()
	s.closers = append(s.closers, func(context.Context) error {
		close(stopping)
		cancel()
		select {
		case <-done:
		case <-time.After(reloadGrace): // a configuration that never ends, such as a pipe
		}
		return nil
	})
}

// readSettings calls getenv for the name of every setting.
func readSettings(getenv func(string) string) {
	_, _ = LoadConfigFile("", getenv) // an empty environment has no faults
}

// awaitPlugins returns when each plugin has been ready once, or ctx ends.
func (s *service) awaitPlugins(ctx context.Context) {
	pause := time.NewTicker(describePause)
	defer pause.Stop()
	notYet := func(x host.ExporterStats) bool { return x.Starts == 0 }
	for s.host.Enabled() && slices.ContainsFunc(s.host.Stats().Exporters, notYet) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// usedByPlugins returns the variables that plugins were granted, and the variables that
// their configurations refer to.
func (s *service) usedByPlugins() []string {
	var names []string
	for _, x := range s.host.Stats().Exporters {
		names = append(names, x.Granted...)
		references, _ := s.cfg.Host.References(x.Name) // the host reports a configuration that cannot be read
		for _, r := range references {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(r.Text, "${env:"), "}"))
		}
	}
	return names
}
