package host_test

import (
	"testing"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestRefusalNamesTheVariableThatWasNotGranted, a real one.
func TestRefusalNamesTheVariableThatWasNotGranted(t *testing.T) {
	path := installOwn(t, "wanting")
	const secret = "not-to-be-shown"
	with := func(c *host.Config) { c.Environ = append(c.Environ, "ACME_TOKEN="+secret) }
	r := startHost(t, with, path)
	testplugin.WaitFor(t, "the refusal", func() bool { return r.Stats().Exporters[0].State == host.StateBackingOff })
	want := "configuration refused: ACME_TOKEN: is not set (ACME_TOKEN is set for this process, but the plugin does not declare it and so does not get it: " +
		"add it to the plugin's Spec.Env, or p0:ACME_TOKEN to SERVE_TRACING_PLUGIN_ENV)"
	if got := r.Stats().Exporters[0].LastError; got != want {
		t.Errorf("last error\n%s\nwant\n%s", got, want)
	}
	wantLines(t, r.log.String(), map[string]int{secret: 0})

	r = startHost(t, func(c *host.Config) { with(c); c.PluginEnv = map[string][]string{"p0": {"ACME_TOKEN"}} }, path)
	r.waitReady(0)
}
