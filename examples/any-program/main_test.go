package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/examples/hellotest"
	"github.com/servetrace/servetrace/examples/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m, "any-program", main) }

const answer = "\"the\" occurs 6 times\n"

// runProgram runs the program to its end. The spans go to standard error, so
// that standard output has the answer alone.
func runProgram(t *testing.T, env ...string) (stdout, stderr string, code int) {
	t.Helper()
	console := hellotest.Self(t, "console")
	cmd := exec.CommandContext(t.Context(), hellotest.Self(t, "any-program"))
	// On a busy machine the plugin may take long to start, and the spans wait.
	cmd.Env = append([]string{
		"GORACE=atexit_sleep_ms=0", "SERVE_TRACING_PLUGIN_DIR=" + filepath.Dir(console),
		"SERVE_TRACING_START_TIMEOUT=1m", "SERVE_TRACING_EXPORT_TIMEOUT=1m", "SERVE_TRACING_STOP_TIMEOUT=1m",
	}, env...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	_ = cmd.Run() // the exit code is checked
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

func TestSpansLeaveAShortProgram(t *testing.T) {
	spans := filepath.Join(t.TempDir(), "spans")
	stdout, stderr, code := runProgram(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_CONSOLE_OUTPUT="+spans)
	if stdout != answer || code != 0 {
		t.Fatalf("output %q, code %d; want %q, 0\n%s", stdout, code, answer, stderr)
	}
	files, err := filepath.Glob(filepath.Join(spans, "*_tracing.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of spans %v, error %v; want one", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	names, parents := map[string]string{}, map[string]string{}
	for _, s := range servicetest.Spans(t, string(text)) {
		names[s.Context.SpanID], parents[s.Name] = s.Name, s.ParentID
		if s.Name == "count" && s.Attributes["words.distinct"] != float64(18) {
			t.Errorf("count has %v", s.Attributes)
		}
	}
	for name, parent := range parents {
		parents[name] = names[parent]
	}
	want := map[string]string{"report": "", "count": "report", "most": "report"}
	if diff := cmp.Diff(want, parents); diff != "" {
		t.Errorf("parents of the spans (-want +got):\n%s", diff)
	}
}

func TestBrokenPluginIsNoFailureOfTheWork(t *testing.T) {
	stdout, stderr, code := runProgram(t, "SERVE_TRACING_EXPORTER_PLUGIN=nosuch", "SERVE_TRACING_STOP_TIMEOUT=2s")
	if stdout != answer || code != 0 || !strings.Contains(stderr, "there is no plugin") || !strings.Contains(stderr, "3 spans not delivered") {
		t.Errorf("output %q, log %q, code %d; want the answer, and both lines in the log", stdout, stderr, code)
	}
}

func TestWithoutPluginsItIsTheSameProgram(t *testing.T) {
	stdout, stderr, code := runProgram(t)
	if stdout != answer || stderr != "" || code != 0 {
		t.Errorf("output %q, log %q, code %d; want the answer alone", stdout, stderr, code)
	}
}

func TestWrongSettingEndsTheStart(t *testing.T) {
	stdout, stderr, code := runProgram(t, "SERVE_TRACING_QUEUE_BYTES=lots")
	if stdout != "" || code != 1 || !strings.Contains(stderr, `any-program: SERVE_TRACING_QUEUE_BYTES="lots"`) {
		t.Errorf("output %q, log %q, code %d", stdout, stderr, code)
	}
}
