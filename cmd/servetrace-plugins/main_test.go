package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// envCommand makes the test binary the command.
const envCommand = "SERVETRACE_PLUGINS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(envCommand) != "" || !strings.HasSuffix(os.Args[0], ".test") {
		main() // exits
	}
	os.Exit(m.Run())
}

// command runs the test binary as the command.
func command(t *testing.T, args ...string) (stderr string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envCommand+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestInstalledLinksArePlugins installs twice, as a pod that starts again does, and asks
// each link for its name. One plugin then takes spans.
func TestInstalledLinksArePlugins(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib", "plugins")
	for range 2 {
		if out, err := command(t, "install", dir); err != nil || out != "" {
			t.Fatalf("install: %v\n%s", err, out)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasPrefix(file.Name(), ".") {
			continue
		}
		names = append(names, file.Name())
		out, err := exec.Command(filepath.Join(dir, file.Name()), "--describe").Output()
		if err != nil {
			t.Fatal(err)
		}
		var about struct{ Name string }
		if err := json.Unmarshal(out, &about); err != nil || about.Name != file.Name() {
			t.Errorf("the link %s describes itself as %q: %v", file.Name(), about.Name, err)
		}
		help, err := exec.Command(filepath.Join(dir, file.Name()), "--help").Output()
		if want := "=" + filepath.Join(dir, file.Name()) + " "; err != nil || !strings.Contains(string(help), want) {
			t.Errorf("the help of the link lacks %q: %v\n%s", want, err, help)
		}
	}
	if diff := cmp.Diff([]string{"console", "datadog", "otlp", "processors"}, names); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
	if len(files) != len(names)+1 {
		t.Errorf("%d files beside the plugins, want the executable alone", len(files)-len(names))
	}
	plugintest.Conformance(t, plugintest.Binary(filepath.Join(dir, "console")))
}

func TestOtherNameTellsTheUse(t *testing.T) {
	for _, args := range [][]string{nil, {"install"}, {"console"}} {
		out, err := command(t, args...)
		if err == nil || !strings.Contains(out, "plugins of servetrace: console, datadog, otlp, processors.") || !strings.Contains(out, " install FOLDER") {
			t.Errorf("arguments %q: %v\n%s", args, err, out)
		}
	}
}

func TestInstallReportsTheFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "install", file)
	if want := "install the plugins: mkdir " + file + ": not a directory\n"; err == nil || out != want {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
}
