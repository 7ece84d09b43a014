package host

import (
	"errors"
	"testing"

	"github.com/servetrace/servetrace/test/testplugin"
)

// TestRefusalNamesTheVariableThatWasNotGranted, a real one.
func TestRefusalNamesTheVariableThatWasNotGranted(t *testing.T) {
	path := installOwn(t, "wanting")
	const secret = "not-to-be-shown"
	with := func(c *Config) { c.Environ = append(c.Environ, "ACME_TOKEN="+secret) }
	r := startHost(t, with, path)
	testplugin.WaitFor(t, "the refusal", func() bool { return r.Stats().Exporters[0].State == StateBackingOff })
	want := "configuration refused: ACME_TOKEN: is not set (ACME_TOKEN is set for this process, but the plugin does not declare it and so does not get it: " +
		"add it to the plugin's Spec.Env, or p0:ACME_TOKEN to SERVE_TRACING_PLUGIN_ENV)"
	if got := r.Stats().Exporters[0].LastError; got != want {
		t.Errorf("last error\n%s\nwant\n%s", got, want)
	}
	wantLines(t, r.log.String(), map[string]int{secret: 0})

	r = startHost(t, func(c *Config) { with(c); c.PluginEnv = map[string][]string{"p0": {"ACME_TOKEN"}} }, path)
	r.waitReady(0)
}

func TestExplainUngranted(t *testing.T) {
	c := Config{Environ: []string{"TOKEN=x", "ACME_KEY=y", "HOME=/h", "EMPTY="}}
	p := plan{name: "a", environ: []string{"HOME=/h"}}
	d := description{granted: map[string]string{"ACME_KEY": "y"}, withheld: []string{"EMPTY"}}
	for text, hint := range map[string]string{
		"TOKEN is wrong":             " (TOKEN is set for this process, but the plugin does not declare it and so does not get it: add it to the plugin's Spec.Env, or a:TOKEN to SERVE_TRACING_PLUGIN_ENV)",
		`the variable "EMPTY" is no`: " (EMPTY is set for this process, and lock-down keeps it from the plugin: add a:EMPTY to SERVE_TRACING_PLUGIN_ENV)",
		"ACME_KEY: is too short":     "",
		"HOME: no such folder":       "",
		"MY_TOKEN: is not set":       "",
		"token: is not set":          "",
	} {
		if got := c.explainUngranted(p, d, errors.New(text)).Error(); got != text+hint {
			t.Errorf("%s\nwant\n%s", got, text+hint)
		}
	}
	if err := c.explainUngranted(p, d, nil); err != nil {
		t.Errorf("%v, want nil", err)
	}
}
