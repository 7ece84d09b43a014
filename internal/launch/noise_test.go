package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/test/testplugin"
)

// serving starts a plugin and configures it.
func serving(t *testing.T, cmd Command) *Process {
	t.Helper()
	p := start(t, cmd)
	reply, err := pluginv1.NewLifecycleClient(p.Conn()).Configure(t.Context(), &pluginv1.ConfigureRequest{})
	if err != nil || len(reply.GetDiagnostics()) > 0 {
		t.Fatalf("Configure = %v, %v", reply, err)
	}
	return p
}

// export sends one span.
func export(t *testing.T, p *Process) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := coltracepb.NewTraceServiceClient(p.Conn()).Export(ctx, &coltracepb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "test"},
			Spans: []*tracepb.Span{{
				TraceId: bytes.Repeat([]byte{1}, 16), SpanId: bytes.Repeat([]byte{2}, 8), Name: "span",
				StartTimeUnixNano: 1, EndTimeUnixNano: 2,
			}},
		}}}},
	})
	return err
}

// checkLog fails if the log has more text than the caps allow: the bursts, the rate since
// begun, the cost of a line (time, level, names), and all of it doubled for the handler's
// quotes.
func checkLog(t *testing.T, log *testplugin.Log, begun time.Time) {
	t.Helper()
	seconds := int(time.Since(begun).Seconds()) + 1
	most := 2 * (burstBytes + bytesPerSecond*seconds + maxLine + 200*(burstLines+linesPerSecond*seconds))
	if size := len(log.String()); size > most {
		t.Errorf("a log of %d bytes after %d s, want at most %d", size, seconds, most)
	}
	for i, c := range []byte(log.String()) {
		if c < ' ' && c != '\n' || c == 0x7f {
			t.Fatalf("the log has byte %#x at %d: …%q", c, i, log.String()[max(0, i-50):i+1])
		}
	}
	for line := range strings.Lines(log.String()) {
		if !strings.HasPrefix(line, "time=") {
			t.Fatalf("a line of the log that the log did not begin: %.200q", line)
		}
	}
}

// TestHazard09NoiseBeforeTheHandshake: it is logged and skipped, of any size
// and kind.
func TestHazard09NoiseBeforeTheHandshake(t *testing.T) {
	for _, mode := range []string{
		"initprint", "early:line-2000000", "early:bytes-2000000", "early:lines-200000", "early:wide-20", "early:junk-2000000",
	} {
		t.Run(mode, func(t *testing.T) {
			cmd, log := command(t, mode)
			begun := time.Now()
			p := serving(t, cmd)
			if err := export(t, p); err != nil {
				t.Errorf("Export: %v", err)
			}
			stop(t, p, time.Minute)
			checkLog(t, log, begun)
			if mode == "initprint" && !strings.Contains(log.String(), "a library greets from init") {
				t.Errorf("the log has not what init printed:\n%s", log)
			}
			if mode != "initprint" && !strings.Contains(string(p.Report().Output), testplugin.Printed) {
				t.Errorf("the end of the output is not in the report: …%q", tailOf(p.Report().Output))
			}
		})
	}
}

// TestHazard09PythonPrintsBeforeTheHandshake: a library of another language prints when
// it is imported.
func TestHazard09PythonPrintsBeforeTheHandshake(t *testing.T) {
	cmd, log := command(t, "record")
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("no Python here: %v", err)
	}
	probe := exec.Command(python, "-c", "print('works')")
	probe.Env = cmd.Environ
	if out, err := probe.CombinedOutput(); err != nil || string(out) != "works\n" {
		t.Skipf("%s does not work here: %q, %v", python, out, err)
	}
	plugin := cmd.Path
	cmd.Path = filepath.Join(t.TempDir(), "plugin.py")
	script := fmt.Sprintf("#!%s\nimport os\nprint('a library greets', flush=True)\nprint('|' * 100000, flush=True)\nos.execv(%q, [%q])\n", python, plugin, plugin)
	if err := os.WriteFile(cmd.Path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p := serving(t, cmd)
	if err := export(t, p); err != nil {
		t.Errorf("Export: %v", err)
	}
	stop(t, p, time.Minute)
	checkLog(t, log, begun)
	if !strings.Contains(log.String(), "a library greets") {
		t.Errorf("the log has not what Python printed:\n%.2000s", log)
	}
}

// TestHazard10OutputNeverBlocks: a plugin that prints on both descriptors at once
// delivers meanwhile, and its print calls return.
func TestHazard10OutputNeverBlocks(t *testing.T) {
	for _, what := range []string{"wide-20", "wide-400", "junk-8000000", "bytes-" + gigabyte} {
		t.Run(what, func(t *testing.T) { testChatty(t, what) })
	}
}

// TestHazard11OutputDoesNotFloodTheLog: lines and bytes are capped, suppressed lines are
// counted, and the report has the end of the output.
func TestHazard11OutputDoesNotFloodTheLog(t *testing.T) {
	for _, what := range []string{"lines-" + million, "line-20000000"} {
		t.Run(what, func(t *testing.T) {
			p, log := testChatty(t, what)
			if !strings.Contains(log.String(), "plugin printed more lines than are logged") {
				t.Errorf("the log does not say that something is missing:\n%.2000s", log)
			}
			// The bursts and the rate of a minute allow far less than half of the lines.
			if n, _ := fmt.Sscanf(what, "lines-%d", new(int)); n == 1 && p.Report().Suppressed < 10_000 {
				t.Errorf("%d lines suppressed", p.Report().Suppressed)
			}
		})
	}
}

// testChatty has a plugin print while it delivers.
func testChatty(t *testing.T, what string) (*Process, *testplugin.Log) {
	t.Helper()
	cmd, log := command(t, "chatty:"+what)
	begun := time.Now()
	p := serving(t, cmd)
	sent := 0
	testplugin.WaitFor(t, "the end of what the plugin prints", func() bool {
		if err := export(t, p); err != nil {
			t.Fatalf("Export: %v", err)
		}
		sent++
		return slices.ContainsFunc(testplugin.Received(t, cmd.Path), func(b testplugin.Batch) bool { return b.ID == testplugin.Printed })
	})
	took := time.Since(begun)
	stop(t, p, time.Minute)
	checkLog(t, log, begun)
	r := p.Report()
	if r.ExitCode != 0 || r.Exit != "exit status 0" {
		t.Errorf("it ended with %q", r.Exit)
	}
	if len(r.Output) != keptOutput || !strings.Contains(string(r.Output), testplugin.Printed) {
		t.Errorf("%d bytes of output kept, want %d with its end: …%q", len(r.Output), keptOutput, tailOf(r.Output))
	}
	if got := testplugin.Spans(t, cmd.Path)["span"]; got != sent {
		t.Errorf("%d of %d spans delivered", got, sent)
	}
	t.Logf("%d exports in %v, a log of %d bytes, %d lines suppressed", sent, took, len(log.String()), r.Suppressed)
	return p, log
}

func tailOf(output []byte) []byte { return output[max(0, len(output)-100):] }
