package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestPluginConfigsOfTheEnvironment(t *testing.T) {
	cfg, err := host.ConfigFromEnv(getenv(map[string]string{host.EnvPlugins: "console,x=./y", host.EnvPluginConfig: "x=y.yaml"}))
	if diff := cmp.Diff(map[string]host.PluginConfig{"x": {File: "y.yaml"}}, cfg.PluginConfigs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	_, err = host.ConfigFromEnv(getenv(map[string]string{host.EnvPlugins: "console,x=./y", host.EnvPluginConfig: "y=y.yaml"}))
	want := `SERVE_TRACING_PLUGIN_CONFIG: there is no plugin "y"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are console, x`
	if fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, off := range []map[string]string{
		{host.EnvPluginConfig: "y=y.yaml"},
		{host.EnvPluginConfig: "y=y.yaml", host.EnvPlugins: "y", "OTEL_SDK_DISABLED": "true"},
	} {
		if _, err := host.ConfigFromEnv(getenv(off)); err != nil {
			t.Errorf("%v is switched off: %v", off, err)
		}
	}
}

func TestFaultyPluginConfigs(t *testing.T) {
	err := host.Config{Plugins: "a,b,unix:///run/d.sock", PluginConfigs: map[string]host.PluginConfig{
		"a": {File: "f", Document: []byte("{}")},
		"b": {Document: make([]byte, 1<<20+1)},
		"c": {},
		"d": {File: "d.yaml"},
	}}.Validate()
	want := `SERVE_TRACING_PLUGIN_CONFIG: plugin "a" has a configuration file, "f", and a configuration text; set one of them
SERVE_TRACING_PLUGIN_CONFIG: the configuration of plugin "b" has 1048577 bytes; want at most 1048576
SERVE_TRACING_PLUGIN_CONFIG: there is no plugin "c"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are a, b, d
SERVE_TRACING_PLUGIN_CONFIG: plugin "d" is attached to (unix:///run/d.sock): this host does not configure it; give the file to the plugin itself (--config)`
	if fmt.Sprint(err) != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
}

// TestPlainReceiverTakesNoConfiguration: no spans are sent to a plugin that ignores its
// configuration, which may demand redaction.
func TestPlainReceiverTakesNoConfiguration(t *testing.T) {
	path := testplugin.Install(t, "stock")
	r := startHost(t, func(c *host.Config) {
		c.PluginConfigs = map[string]host.PluginConfig{"p0": {Document: []byte("processors: [{redact: {}}]")}}
	}, path)
	r.spans("s", 10)
	testplugin.WaitFor(t, "the complaint", func() bool {
		return strings.Contains(r.log.String(), "the plugin is a plain OTLP receiver, which takes no configuration")
	})
	if got := testplugin.Received(t, path); len(got) != 0 {
		t.Errorf("it got %+v", got)
	}
}

// TestConfigFileThatComesLater: the plugin waits for its file, and each process gets the
// present content of the file.
func TestConfigFileThatComesLater(t *testing.T) {
	path, document := configPlugin(t), filepath.Join(t.TempDir(), "p.yaml")
	r := startHost(t, func(c *host.Config) { c.PluginConfigs = map[string]host.PluginConfig{"p0": {File: document}} }, path)
	r.spans("s", 10)
	testplugin.WaitFor(t, "the complaint", func() bool { return strings.Contains(r.log.String(), "there is no such file; create it") })
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(document+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(document+".new", document); err != nil {
			t.Fatal(err)
		}
	}
	write("first: 1")
	r.waitReady(0)
	pid := r.Stats().Exporters[0].PID
	write("second: 2")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "another process", func() bool {
		x := r.Stats().Exporters[0]
		return x.State == host.StateReady && x.PID != pid
	})
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 10})
	if diff := cmp.Diff([]string{"first: 1", "second: 2"}, configsOf(t, path)); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}
