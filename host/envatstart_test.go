package host_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestEnvAtStart: a plugin that asks for it finds the granted variables in the
// environment that its process starts with, and no other variable. Under
// lock-down that holds for the variables that the operator names.
func TestEnvAtStart(t *testing.T) {
	variables := []string{"TESTPLUGIN_A=a", "TESTPLUGIN_B=b=c", "MY_C=c"}
	t.Run("granted", func(t *testing.T) {
		path := testplugin.Install(t, "snoop:at-start")
		r := startHost(t, func(c *host.Config) { c.Environ = append(c.Environ, variables...) }, path)
		r.waitReady(0)
		seen := testplugin.ReadSnooped(t, path)
		want := []string{"TESTPLUGIN_A=a", "TESTPLUGIN_B=b=c"}
		for when, environ := range map[string][]string{"start": seen.Start, "later": seen.Later} {
			if diff := cmp.Diff(want, ofEnviron(environ, "TESTPLUGIN_", "MY_", "SECRET_")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		if got := r.Stats().Exporters[0].Crashes; got != 0 {
			t.Errorf("the first process, which was only asked what it is, counts as %d crashes", got)
		}
	})
	t.Run("lock-down", func(t *testing.T) {
		path, pin := pinnedPlugin(t, "snoop:at-start")
		r := startHost(t, func(c *host.Config) {
			c.Plugins = "p0=" + path + pin
			c.Lockdown = true
			c.Environ = append(c.Environ, variables...)
			c.PluginEnv = map[string][]string{"p0": {"TESTPLUGIN_A"}}
		})
		r.waitReady(0)
		seen := testplugin.ReadSnooped(t, path)
		if diff := cmp.Diff([]string{"TESTPLUGIN_A=a"}, ofEnviron(seen.Start, "TESTPLUGIN_", "MY_", "SECRET_")); diff != "" {
			t.Errorf("start (-want +got):\n%s", diff)
		}
	})
}

// TestEnvAtStartStartsOnceMore: the plugin is started a second time only if a
// variable that it is granted was missing at the first start.
func TestEnvAtStartStartsOnceMore(t *testing.T) {
	for name, test := range map[string]struct {
		atStart bool
		environ []string
		want    []string // start environments
	}{
		"granted":     {true, []string{"ACME_KEY=k", "OTHER=o"}, []string{"", "ACME_KEY=k"}},
		"not granted": {true, []string{"OTHER=o"}, []string{""}},
		"not asked":   {false, []string{"ACME_KEY=k"}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var starts []string
			h, err := host.New(host.Config{Plugins: "/fake/plugin", Environ: test.environ}, host.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			h.Supervisor().Connect = func(_ context.Context, _ *supervise.Settings, p supervise.Plan, _ *slog.Logger) (supervise.Peer, error) {
				mu.Lock()
				defer mu.Unlock()
				environ := slices.DeleteFunc(slices.Clone(p.Environ), func(kv string) bool { return strings.HasPrefix(kv, pluginlist.VarMaxProcs+"=") })
				starts = append(starts, strings.Join(environ, " "))
				plugin := newFakePlugin(func(context.Context, int) error { return nil })
				plugin.patterns, plugin.atStart = []string{"ACME_*"}, test.atStart
				return plugin, nil
			}
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			testplugin.WaitFor(t, "the plugin to be ready", func() bool { return h.Stats().Exporters[0].State == host.StateReady })
			if err := h.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(test.want, starts); diff != "" {
				t.Errorf("start environments (-want +got):\n%s", diff)
			}
		})
	}
}
