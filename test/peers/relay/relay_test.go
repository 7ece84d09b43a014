// Package relay holds the relay against an unmodified Collector in front of it, which
// sends to the relay's Unix socket. It has tests only.
package relay

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/test/peers/peer"
)

// relay is a process of "servetrace relay" with the plugin console.
type relay struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	log    *bufio.Scanner
}

// startRelay starts a relay at a socket and returns when it listens.
func startRelay(t *testing.T, socket string) *relay {
	t.Helper()
	r := &relay{cmd: exec.Command(peer.Command(t, "servetrace"), "relay", "--socket", socket)}
	r.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "SERVE_TRACING_EXPORTER_PLUGIN=" + peer.Plugin(t, "console"),
	}
	r.cmd.Stdout = &r.stdout
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() }) // it has ended, except if the test has failed
	r.log = bufio.NewScanner(stderr)
	for r.log.Scan() {
		if strings.Contains(r.log.Text(), "relay listens") {
			return r
		}
	}
	t.Fatal("the relay has ended")
	return nil
}

// stop stops the relay, and returns its output and the last line of its log.
func (r *relay) stop(t *testing.T) (output, last string) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for r.log.Scan() {
		last = r.log.Text()
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the relay ends with %v", err)
	}
	return r.stdout.String(), last
}

// TestCollectorInFront sends spans to the Collector, whose exporter for OTLP sends them
// to the relay.
func TestCollectorInFront(t *testing.T) {
	folder, err := os.MkdirTemp("", "rl") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "relay.sock")
	r := startRelay(t, socket)
	collector := peer.StartCollector(t, peer.ForwardTo("unix://"+socket))
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpointURL(collector.GRPC()))
	if err != nil {
		t.Fatal(err)
	}
	const spans = 5000
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(spans)))
	for i := range spans {
		_, span := provider.Tracer("test").Start(t.Context(), fmt.Sprintf("span-%d-", i))
		span.End()
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Errorf("the Collector does not take all spans: %v", err)
	}
	output, last := r.stop(t)
	for i := range spans {
		if n := strings.Count(output, fmt.Sprintf(`"span-%d-"`, i)); n != 1 {
			t.Fatalf("span %d is printed %d times, want once; the relay: %s", i, n, last)
		}
	}
	if want := fmt.Sprintf("msg=stopped spans=%d console.delivered=%d", spans, spans); !strings.Contains(last, want) {
		t.Errorf("the relay's last line is %q, want %q", last, want)
	}
}
