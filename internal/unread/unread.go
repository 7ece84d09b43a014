// Package unread warns of environment variables that look like settings, but that neither
// the process nor its plugins read. Most of them are misspelt.
//
//  1. Start finds the variables that the process itself does not read.
//  2. It waits in the background until each plugin has been ready, because a plugin may
//     declare any variable.
//  3. It logs a warning for each variable that no plugin uses.
//
// Package settings decides which variables look like settings. This package has one file,
// unread.go.
package unread

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/settings"
)

// Watch describes a process whose environment variables are checked.
type Watch struct {
	// Environ is the environment, in the form of os.Environ.
	Environ []string
	// Load reads all settings of the process by getenv. A variable that it does not ask for is
	// not a setting of the process.
	Load func(getenv func(string) string)
	// Process is the noun for the process in the warnings, such as "service".
	Process string
	// Host runs the plugins, and Config has its settings.
	Host   *host.Host
	Config host.Config
	Log    *slog.Logger
}

const (
	// describePause is the interval at which awaitPlugins checks the plugins.
	describePause = 50 * time.Millisecond
	// stopGrace bounds the time for which stop blocks. The check may hang, for example if a
	// configuration file is a pipe.
	stopGrace = time.Second
)

// Start checks the variables in the background, when each plugin has been ready or the start
// timeout of plugins has passed. If the process reads all variables, it starts no goroutine.
//
// stop ends the check. It blocks until the check has ended, at most for a second. It must
// be called exactly once.
func (w Watch) Start() (stop func()) {
	variables := settings.Unread(w.Environ, w.Load, w.Config.PluginEnv)
	if len(variables) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(w.Config.StartTimeout, host.DefaultStartTimeout))
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() { // ends after the check, or when stop is called
		defer close(done)
		w.awaitPlugins(ctx)
		used := w.usedByPlugins()
		select {
		case <-stopping:
			return
		default:
		}
		variables = slices.DeleteFunc(variables, func(v settings.Variable) bool { return slices.Contains(used, v.Name) })
		for _, warning := range settings.Warnings(variables, "neither the "+w.Process+" nor a running plugin reads this variable") {
			w.Log.Warn("setting is not used", "setting", warning)
		}
	}()
	return func() {
		close(stopping)
		cancel()
		select {
		case <-done:
		case <-time.After(stopGrace):
		}
	}
}

// awaitPlugins waits until each plugin has been ready at least once, or ctx ends.
func (w Watch) awaitPlugins(ctx context.Context) {
	pause := time.NewTicker(describePause)
	defer pause.Stop()
	notYet := func(x host.ExporterStats) bool { return x.Starts == 0 }
	for w.Host.Enabled() && slices.ContainsFunc(w.Host.Stats().Plugins(), notYet) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// usedByPlugins returns the names of the variables that plugins were granted, and of the
// variables that their configurations contain as ${env:NAME}.
func (w Watch) usedByPlugins() []string {
	var names []string
	for _, x := range w.Host.Stats().Plugins() {
		names = append(names, x.Granted...)
		references, _ := w.Config.References(x.Name) // the host itself reports a configuration that cannot be read
		for _, r := range references {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(r.Text, "${env:"), "}"))
		}
	}
	return names
}
