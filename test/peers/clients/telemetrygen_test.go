package clients

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/servetrace/servetrace/test/peers/peer"
)

// listen starts a plugin that listens by itself, as its --listen does, and gives
// its address. It is ended by SIGTERM when the test ends.
func listen(t *testing.T, plugin string, env ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cl") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command(peer.Plugin(t, plugin), "--listen", filepath.Join(dir, "p.sock"))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("plugin %s: %v\n%s", plugin, err, &log)
		}
	})
	_, address, ok := strings.Cut(strings.TrimSpace(line), "=")
	if err != nil || !ok {
		t.Fatalf("plugin %s printed %q, %v", plugin, line, err)
	}
	return address
}

// The spans that telemetrygen sends: so many traces, of a span with children.
const (
	generatedTraces = 500
	generatedSpans  = 4
)

func generate(t *testing.T, address string) {
	t.Helper()
	peer.Telemetrygen(t, address, false, "--traces", "500", "--child-spans", "3", "--workers", "1")
}

// wantGenerated checks that nothing is missing and nothing is there twice, and
// that each trace is a span and its children.
func wantGenerated(t *testing.T, traces map[string][]node) {
	t.Helper()
	if len(traces) != generatedTraces {
		t.Errorf("%d traces, want %d", len(traces), generatedTraces)
	}
	for id, spans := range traces {
		ids := map[string]bool{}
		root := ""
		for _, s := range spans {
			ids[s.id] = true
			if s.parent == "" {
				root = s.id
			}
		}
		for _, s := range spans {
			if s.id != root && s.parent != root {
				t.Errorf("trace %s: span %s has the parent %s, want %s", id, s.id, s.parent, root)
			}
		}
		if len(spans) != generatedSpans || len(ids) != generatedSpans {
			t.Fatalf("trace %s has %d spans with %d ids, want %d", id, len(spans), len(ids), generatedSpans)
		}
	}
}

// A plugin that listens is a plain receiver of OTLP: a program that sends to a Collector
// can send through it, and it loses nothing and repeats nothing.
func TestPlainSenderThroughOurPlugin(t *testing.T) {
	t.Run("otlp", func(t *testing.T) {
		t.Parallel()
		c := peer.StartCollector(t)
		generate(t, listen(t, "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT="+c.HTTP()))
		wantGenerated(t, nodes(c.WaitSpans(generatedTraces*generatedSpans)))
	})
	t.Run("datadog", func(t *testing.T) {
		t.Parallel()
		a := peer.StartDatadogAgent(t)
		generate(t, listen(t, "datadog", "DD_TRACE_AGENT_URL="+a.URL()))
		wantGenerated(t, agentNodes(a.WaitSpans(generatedTraces*generatedSpans)))
	})
}
