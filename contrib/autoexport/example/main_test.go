package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestMain lets this test binary also be the program, and the console plugin, under their
// names.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "example":
		main()
		return
	case "console":
		pluginsdk.Main(pluginsdk.Spec{Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New})
	}
	os.Exit(m.Run())
}

// runProgram runs the program to its end.
func runProgram(t *testing.T, environ ...string) (stdout, stderr string, code int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"example", "console"} {
		if err := os.Symlink(exe, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "example"))
	cmd.Env = append([]string{
		"GORACE=atexit_sleep_ms=0", "GOCOVERDIR=" + t.TempDir(), "SERVE_TRACING_PLUGIN_DIR=" + dir,
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_EXPORT_TIMEOUT=1m", "SERVE_TRACING_STOP_TIMEOUT=1m",
	}, environ...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	_ = cmd.Run() // ProcessState has the code
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

func TestSpansLeaveThroughAPlugin(t *testing.T) {
	stdout, stderr, code := runProgram(t, "OTEL_TRACES_EXPORTER=servetrace", "SERVE_TRACING_EXPORTER_PLUGIN=console")
	if code != 0 || strings.Count(stdout, `"name": "step"`) != 2 || strings.Count(stdout, `"name": "work"`) != 1 {
		t.Errorf("code %d, want 0 and three spans in the output:\n%s\n%s", code, stdout, stderr)
	}
}

func TestOtherExportersStay(t *testing.T) {
	stdout, stderr, code := runProgram(t, "OTEL_TRACES_EXPORTER=none", "SERVE_TRACING_EXPORTER_PLUGIN=console")
	if code != 0 || stdout != "" || stderr != "" {
		t.Errorf("code %d, output %q, log %q; want 0 and nothing", code, stdout, stderr)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		want    string
	}{
		{"no list", nil, "example: OTEL_TRACES_EXPORTER=servetrace needs the list of plugins: set SERVE_TRACING_EXPORTER_PLUGIN=console, or another plugin\n"},
		{"wrong setting", []string{"SERVE_TRACING_QUEUE_BYTES=lots"}, `SERVE_TRACING_QUEUE_BYTES="lots"`},
		{"no such plugin", []string{"SERVE_TRACING_EXPORTER_PLUGIN=nosuch", "SERVE_TRACING_STOP_TIMEOUT=1s"}, "3 spans not delivered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := runProgram(t, append(c.environ, "OTEL_TRACES_EXPORTER=servetrace")...)
			if code != 1 || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("code %d, output %q, log %q; want 1 and %q", code, stdout, stderr, c.want)
			}
		})
	}
}

func TestDisabledSDKNeedsNoPlugin(t *testing.T) {
	stdout, stderr, code := runProgram(t, "OTEL_TRACES_EXPORTER=servetrace", "OTEL_SDK_DISABLED=true")
	if code != 0 || stdout != "" {
		t.Errorf("code %d, output %q, log %q; want 0 and no spans", code, stdout, stderr)
	}
}
