package pluginlist

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file writes a file into a folder of its own and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParsePluginConfigs(t *testing.T) {
	for _, test := range []struct {
		text string
		want map[string]Configuration
		err  string
	}{
		{"", nil, ""},
		{" a=./a.yaml , b=/etc/b.json", map[string]Configuration{"a": {File: "./a.yaml"}, "b": {File: "/etc/b.json"}}, ""},
		{"a=x%2Cy%3Dz%40.yaml", map[string]Configuration{"a": {File: "x,y=z@.yaml"}}, ""},
		{"a", nil, `entry "a": must be NAME=FILE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN`},
		{"a=", nil, `entry "a=": must be NAME=FILE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN`},
		{"=x", nil, `entry "=x": must be NAME=FILE, with the name of a plugin of SERVE_TRACING_EXPORTER_PLUGIN`},
		{"a=x=y", nil, `entry "a=x=y": has two equals signs; write one in a path as %3D`},
		{"a=x,a=y", nil, `entry "a=y": plugin "a" has a file already`},
	} {
		t.Run(test.text, func(t *testing.T) {
			got, err := ParseConfigs(test.text)
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
		configs, err := ParseConfigs(text)
		for name, c := range configs {
			if err != nil || name == "" || c.File == "" || c.Document != nil {
				t.Errorf("%q: %+v, %v", name, c, err)
			}
		}
	})
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
		{file(t, "large.yaml", strings.Repeat("#", mostConfigBytes+1)), 0, "it has 1048577 bytes, want 1048576 at most"},
		{filepath.Join(dir, "nosuch"), 0, "there is no such file; create it, or correct its path"},
		{dir, 0, "this is no regular file (d---------); name a regular file"},
		{pipe, 0, "this is no regular file (p---------); name a regular file"},
	} {
		t.Run(filepath.Base(test.path), func(t *testing.T) {
			got, err := Configuration{File: test.path}.load()
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
	if got, err := (Configuration{File: path, Pick: pick}).load(); string(got) != "second: 2\n" || err != nil {
		t.Errorf("picked %q, %v", got, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Configuration{File: path, Pick: pick}.load()
	if want := fmt.Sprintf("configuration file %q: there is no second line", path); fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
