package host_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/test/testplugin"
)

// ofEnviron returns the variables of an environment with one of the prefixes.
func ofEnviron(environ []string, prefixes ...string) []string {
	var list []string
	for _, kv := range environ {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(kv, p) }) {
			list = append(list, kv)
		}
	}
	slices.Sort(list)
	return list
}

// TestCanarySecretsReachNoPlugin is hazard 15: a variable that is neither base, declared
// nor named by the operator is in no plugin's environment. A named variable is in the
// environment of the named plugin alone, from its start. The prefixes are those by which
// cloud programs find their identity.
func TestCanarySecretsReachNoPlugin(t *testing.T) {
	families := map[string][]string{
		"AWS_*":       {"AWS_ACCESS_KEY_ID=canary-aws-1", "AWS_SECRET_ACCESS_KEY=canary-aws-2", "AWS_ROLE_ARN=canary-aws-3"},
		"AZURE_*":     {"AZURE_CLIENT_ID=canary-azure-1", "AZURE_FEDERATED_TOKEN_FILE=/canary-azure-2"},
		"GOOGLE_*":    {"GOOGLE_APPLICATION_CREDENTIALS=/canary-google-1"},
		"DD_*":        {"DD_API_KEY=canary-dd"},
		"SECRET_CODE": {"SECRET_CODE=canary-code", "SECRET_CODE_2=canary-code-2"},
	}
	for pattern, variables := range families {
		t.Run(strings.TrimSuffix(pattern, "*"), func(t *testing.T) {
			named, other := testplugin.Install(t, "snoop"), testplugin.Install(t, "snoop")
			r := startHost(t, func(c *host.Config) {
				for _, family := range families {
					c.Environ = append(c.Environ, family...)
				}
				c.PluginEnv = map[string][]string{"p0": {pattern}}
			}, named, other)
			r.waitReady(0)
			r.waitReady(1)
			want := slices.Clone(variables)
			slices.Sort(want)
			if pattern == "SECRET_CODE" {
				want = want[:1]
			}
			seen := testplugin.ReadSnooped(t, named)
			for when, environ := range map[string][]string{"start": seen.Start, "later": seen.Later} {
				if got := canaries(environ); !slices.Equal(got, want) {
					t.Errorf("%s: it has %q, want %q", when, got, want)
				}
			}
			seen = testplugin.ReadSnooped(t, other)
			if got := canaries(append(seen.Start, seen.Later...)); len(got) > 0 {
				t.Errorf("the other has %q", got)
			}
			if x := r.Stats().Exporters; len(x[0].Granted) != len(want) || len(x[1].Granted) != 0 {
				t.Errorf("granted %q and %q", x[0].Granted, x[1].Granted)
			}
		})
	}
}

// canaries are the variables of an environment that are none of a plugin's.
func canaries(environ []string) []string {
	var list []string
	for _, kv := range environ {
		if strings.Contains(kv, "canary") {
			list = append(list, kv)
		}
	}
	slices.Sort(list)
	return list
}

// TestPluginsOwnSettingsWin is hazard 16: the operator's settings for a plugin, and the
// variables of the handshake, override the host's environment, even if the operator names
// the variable.
func TestPluginsOwnSettingsWin(t *testing.T) {
	path := testplugin.Install(t, "snoop")
	r := startHost(t, func(c *host.Config) {
		c.Environ = append(c.Environ, "GOMEMLIMIT=1GiB", "GOMAXPROCS=7", "PLUGIN_UNIX_SOCKET_DIR=/evil", "SERVETRACE_STDOUT_FD=99", "PLUGIN_OTHER=1")
		c.PluginEnv = map[string][]string{pluginlist.EveryPlugin: {"GOMEMLIMIT", "GOMAXPROCS", "PLUGIN_*", "SERVETRACE_*"}}
		c.PluginMemoryLimit = map[string]int64{"": 1, "p0": 256 << 20}
		c.PluginMaxProcs = map[string]int{"": 2}
	}, path)
	r.waitReady(0)
	seen := testplugin.ReadSnooped(t, path)
	for when, environ := range map[string][]string{"start": seen.Start, "later": seen.Later} {
		want := []string{"GOMAXPROCS=2", "GOMEMLIMIT=268435456", "PLUGIN_OTHER=1"}
		if diff := cmp.Diff(want, ofEnviron(environ, "GOM", "PLUGIN_OTHER")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		for _, kv := range environ {
			if strings.Contains(kv, "/evil") || kv == "SERVETRACE_STDOUT_FD=99" {
				t.Errorf("%s: it has %s", when, kv)
			}
		}
	}
}

// TestReferencesAreToldToThePluginAlone is hazard 17: the secrets of a configuration
// reach the plugin. They are in no argument, environment, log, status or inspection, even
// if the plugin prints them.
func TestReferencesAreToldToThePluginAlone(t *testing.T) {
	path := testplugin.Install(t, "snoop")
	secretFile := file(t, "token", "canary-of-a-file\n")
	written := "exporter:\n  token: Bearer ${env:MY_CANARY} # ${env:NONE}\n  file: ${file:" + secretFile + "}\n"
	document := file(t, "p.yaml", written)
	var cfg host.Config
	r := startHost(t, func(c *host.Config) {
		c.Environ = append(c.Environ, "MY_CANARY=canary-of-env", "TESTPLUGIN_API_KEY=canary-of-a-key", "https_proxy=http://u:canary-of-a-proxy@localhost:1")
		c.PluginConfigs = map[string]host.PluginConfig{"p0": {File: document}}
		cfg = *c
	}, path)
	r.waitReady(0)
	r.spans("s", 1)
	testplugin.WaitFor(t, "a rejected span", func() bool { return len(r.Stats().Exporters[0].Rejected) > 0 })
	seen := testplugin.ReadSnooped(t, path)
	want := "{\"exporter\":\n{\"token\": \"Bearer canary-of-env\",\n\"file\": \"canary-of-a-file\"}}\n"
	if diff := cmp.Diff(want, seen.Config); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	for what, list := range map[string][]string{"start": seen.Start, "arguments": seen.Args} {
		for _, text := range list {
			if strings.Contains(text, "canary-of-") && !strings.HasPrefix(text, "https_proxy=") {
				t.Errorf("%s: %s", what, text)
			}
		}
	}
	testplugin.WaitFor(t, "what it tells", func() bool {
		return strings.Contains(r.log.String(), "plugin's remark on its configuration") && strings.Contains(r.log.String(), "TESTPLUGIN_API_KEY=<redacted>")
	})
	status := fmt.Sprintf("%+v", r.Stats())
	if !strings.Contains(status, "Bearer <redacted>") {
		t.Errorf("the status has no error of the plugin: %s", status)
	}
	i := host.Inspect(t.Context(), cfg, false)[0]
	if string(i.Config) != written || string(i.Document()) != want {
		t.Errorf("inspected: %q, for the plugin: %q", i.Config, i.Document())
	}
	for what, text := range map[string]string{"log": r.log.String(), "status": status, "configuration": string(i.Config)} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "canary-of-") {
				t.Errorf("%s: %s", what, line)
			}
		}
	}
}

// TestFaultyReferenceKeepsThePluginFromBeingReady: the error names the reference.
func TestFaultyReferenceKeepsThePluginFromBeingReady(t *testing.T) {
	path := testplugin.Install(t, "snoop")
	r := startHost(t, func(c *host.Config) {
		c.PluginConfigs = map[string]host.PluginConfig{"p0": {Document: []byte("exporter: {a: '${env:NO_SUCH}'}")}}
	}, path)
	testplugin.WaitFor(t, "the complaint", func() bool {
		return strings.Contains(r.log.String(), `configuration: line 1: ${env:NO_SUCH}: the variable is not set, or empty, in the environment of this process; set it`)
	})
	if _, err := os.Stat(path + ".snooped"); err == nil {
		t.Error("it was configured all the same")
	}
}

// pinnedPlugin installs a plugin and returns its entry with the pin of its file.
func pinnedPlugin(t *testing.T, mode string) (path, pin string) {
	t.Helper()
	path = testplugin.Install(t, mode)
	exe, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return path, pluginlist.PinMark + hex.EncodeToString(sum[:])
}

// TestLockdownGrants: under lock-down a pinned plugin runs. It gets the variables that it
// declares and the operator names. A configuration can refer to no other variable.
func TestLockdownGrants(t *testing.T) {
	path, pin := pinnedPlugin(t, "snoop")
	r := startHost(t, func(c *host.Config) {
		c.Plugins = "p0=" + path + pin
		c.Lockdown = true
		c.Environ = append(c.Environ, "TESTPLUGIN_A=a", "TESTPLUGIN_B=b", "MY_C=c")
		c.PluginEnv = map[string][]string{"p0": {"TESTPLUGIN_A", "MY_*"}}
		c.PluginConfigs = map[string]host.PluginConfig{"p0": {Document: []byte("exporter: {c: \"${env:MY_C}\"}\n")}}
	})
	r.waitReady(0)
	seen := testplugin.ReadSnooped(t, path)
	if diff := cmp.Diff([]string{"MY_C=c", "TESTPLUGIN_A=a"}, ofEnviron(seen.Later, "MY_", "TESTPLUGIN_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(r.log.String(), "lock-down keeps variables from the plugin that it declares; name them for it in SERVE_TRACING_PLUGIN_ENV if it needs them\" plugin=p0 variables=[TESTPLUGIN_B]") {
		t.Error("the log does not say what was withheld")
	}
	if seen.Config != `{"exporter": {"c": "c"}}`+"\n" {
		t.Errorf("document %q", seen.Config)
	}
}

// TestWrongPinIsUntrusted: nothing of it runs.
func TestWrongPinIsUntrusted(t *testing.T) {
	path := testplugin.Install(t, "snoop")
	r := startHost(t, func(c *host.Config) { c.Plugins = path + pluginlist.PinMark + strings.Repeat("00", 32) })
	testplugin.WaitFor(t, "the state", func() bool { return r.Stats().Exporters[0].State == host.StateUntrusted })
	if _, err := os.Stat(path + ".snooped"); err == nil {
		t.Error("it was started")
	}
	if x := r.Stats().Exporters[0]; !strings.Contains(x.LastError, "its bytes are not the pinned ones") {
		t.Errorf("last error %s", x.LastError)
	}
}
