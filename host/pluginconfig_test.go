package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/test/testplugin"
)

func TestParsePluginConfigs(t *testing.T) {
	for _, test := range []struct {
		text string
		want map[string]PluginConfig
		err  string
	}{
		{"", nil, ""},
		{" a=./a.yaml , b=/etc/b.json", map[string]PluginConfig{"a": {File: "./a.yaml"}, "b": {File: "/etc/b.json"}}, ""},
		{"a=x%2Cy%3Dz%40.yaml", map[string]PluginConfig{"a": {File: "x,y=z@.yaml"}}, ""},
		{"a", nil, `entry "a": must be NAME=FILE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN`},
		{"a=", nil, `entry "a=": must be NAME=FILE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN`},
		{"=x", nil, `entry "=x": must be NAME=FILE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN`},
		{"a=x=y", nil, `entry "a=x=y": has two equals signs; write one in a path as %3D`},
		{"a=x,a=y", nil, `entry "a=y": plugin "a" has a file already`},
	} {
		t.Run(test.text, func(t *testing.T) {
			got, err := parsePluginConfigs(test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := "<nil>"
			if test.err != "" {
				want = "SERVE_TRACING_PLUGIN_CONFIG: " + test.err
			}
			if fmt.Sprint(err) != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

func FuzzParsePluginConfigs(f *testing.F) {
	f.Add("a=x%2Cy,b=/c d")
	f.Fuzz(func(t *testing.T, text string) {
		configs, err := parsePluginConfigs(text)
		for name, c := range configs {
			if err != nil || name == "" || c.File == "" || c.Document != nil {
				t.Errorf("%q: %+v, %v", name, c, err)
			}
		}
	})
}

func TestPluginConfigsOfTheEnvironment(t *testing.T) {
	cfg, err := ConfigFromEnv(getenv(map[string]string{EnvPlugins: "console,x=./y", EnvPluginConfig: "x=y.yaml"}))
	if diff := cmp.Diff(map[string]PluginConfig{"x": {File: "y.yaml"}}, cfg.PluginConfigs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	_, err = ConfigFromEnv(getenv(map[string]string{EnvPlugins: "console,x=./y", EnvPluginConfig: "y=y.yaml"}))
	want := `SERVE_TRACING_PLUGIN_CONFIG: there is no plugin "y"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are console, x`
	if fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, off := range []map[string]string{
		{EnvPluginConfig: "y=y.yaml"},
		{EnvPluginConfig: "y=y.yaml", EnvPlugins: "y", envSDKDisabled: "true"},
	} {
		if _, err := ConfigFromEnv(getenv(off)); err != nil {
			t.Errorf("%v is switched off: %v", off, err)
		}
	}
}

func TestFaultyPluginConfigs(t *testing.T) {
	err := Config{Plugins: "a,b,unix:///run/d.sock", PluginConfigs: map[string]PluginConfig{
		"a": {File: "f", Document: []byte("{}")},
		"b": {Document: make([]byte, mostConfigBytes+1)},
		"c": {},
		"d": {File: "d.yaml"},
	}}.Validate()
	want := `SERVE_TRACING_PLUGIN_CONFIG: plugin "a" has a file, "f", and a document; give it one of them
SERVE_TRACING_PLUGIN_CONFIG: the document of plugin "b" has 1048577 bytes; it may have 1048576
SERVE_TRACING_PLUGIN_CONFIG: there is no plugin "c"; the plugins of SERVE_TRACING_EXPORTER_PLUGIN are a, b, d
SERVE_TRACING_PLUGIN_CONFIG: plugin "d" is attached to (unix:///run/d.sock): this host does not configure it; give the file to the plugin itself (--config)`
	if fmt.Sprint(err) != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
}

func TestConfigFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml") // as Kubernetes mounts a ConfigMap
	if err := os.Symlink(file(t, "most.yaml", strings.Repeat("#", mostConfigBytes)), link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path  string
		bytes int
		err   string
	}{
		{link, mostConfigBytes, ""},
		{file(t, "empty.yaml", ""), 0, ""},
		{file(t, "large.yaml", strings.Repeat("#", mostConfigBytes+1)), 0, "it has 1048577 bytes; a plugin's configuration has at most 1048576"},
		{filepath.Join(dir, "nosuch"), 0, "there is no such file; create it, or correct its path"},
		{dir, 0, "this is no regular file (d---------); name a file with a YAML or JSON document"},
		{pipe, 0, "this is no regular file (p---------); name a file with a YAML or JSON document"},
	} {
		t.Run(filepath.Base(test.path), func(t *testing.T) {
			got, err := PluginConfig{File: test.path}.load()
			want := "<nil>"
			if test.err != "" {
				want = fmt.Sprintf("configuration file %q: %s", test.path, test.err)
			}
			if len(got) != test.bytes || fmt.Sprint(err) != want {
				t.Errorf("%d bytes, %v; want %d, %s", len(got), err, test.bytes, want)
			}
		})
	}
}

// TestPickedConfig: a plugin's document may be a part of a file.
func TestPickedConfig(t *testing.T) {
	path := file(t, "serve.yaml", "first: 1\nsecond: 2\n")
	pick := func(whole []byte) ([]byte, error) {
		_, second, found := strings.Cut(string(whole), "\n")
		if !found {
			return nil, errors.New("there is no second line")
		}
		return []byte(second), nil
	}
	if got, err := (PluginConfig{File: path, Pick: pick}).load(); string(got) != "second: 2\n" || err != nil {
		t.Errorf("picked %q, %v", got, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := PluginConfig{File: path, Pick: pick}.load()
	if want := fmt.Sprintf("configuration file %q: there is no second line", path); fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestPlainReceiverTakesNoConfiguration: spans are not sent to a plugin that
// leaves undone what its document asks for, redaction say.
func TestPlainReceiverTakesNoConfiguration(t *testing.T) {
	path := testplugin.Install(t, "stock")
	r := startHost(t, func(c *Config) {
		c.PluginConfigs = map[string]PluginConfig{"p0": {Document: []byte("processors: [{redact: {}}]")}}
	}, path)
	r.spans("s", 10)
	testplugin.WaitFor(t, "the complaint", func() bool {
		return strings.Contains(r.log.String(), "the plugin is a plain OTLP receiver, which takes no configuration")
	})
	if got := testplugin.Received(t, path); len(got) != 0 {
		t.Errorf("it got %+v", got)
	}
}

// TestConfigFileThatComesLater: the plugin waits for its file, and each of its
// processes gets what the file has then.
func TestConfigFileThatComesLater(t *testing.T) {
	path, document := configPlugin(t), filepath.Join(t.TempDir(), "p.yaml")
	r := startHost(t, func(c *Config) { c.PluginConfigs = map[string]PluginConfig{"p0": {File: document}} }, path)
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
		return x.State == StateReady && x.PID != pid
	})
	r.flush()
	r.wantBooks(0, map[string]uint64{"delivered": 10})
	if diff := cmp.Diff([]string{"first: 1", "second: 2"}, configsOf(t, path)); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}
