// Package relay holds the relay against an unmodified Collector in front of it, which
// sends to the relay's Unix socket. It has tests only.
package relay

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/test/peers/peer"
	"github.com/servetrace/servetrace/test/testplugin"
)

// relay is a process of "servetrace relay" with the plugin console.
type relay struct {
	cmd    *exec.Cmd
	output string // path of its standard output
	log    *bufio.Scanner
}

// startRelay starts a relay at a socket and returns when it listens.
func startRelay(t *testing.T, socket string) *relay {
	t.Helper()
	r := &relay{
		cmd:    exec.Command(peer.Command(t, "servetrace"), "relay", "--socket", socket),
		output: filepath.Join(filepath.Dir(socket), "output"),
	}
	r.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "SERVE_TRACING_EXPORTER_PLUGIN=" + peer.Plugin(t, "console"),
	}
	stdout, err := os.Create(r.output)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdout.Close() }() // the process has its own descriptor
	r.cmd.Stdout = stdout
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
	return r.printed(t), last
}

// printed returns the output of the relay.
func (r *relay) printed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(r.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// page shows the configuration of a Collector that sends to the relay.
const page = "../../../docs/how-to/put-a-collector-in-front.md"

// startCollector starts a Collector with the configuration of the page, except for the
// addresses, and returns the address for gRPC.
func startCollector(t *testing.T, folder, socket string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml [^\n]*\n(receivers:.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no configuration", page)
	}
	grpc, http := freeAddress(t), freeAddress(t)
	settings := strings.NewReplacer("localhost:4317", grpc, "localhost:4318", http, "/run/servetrace/relay.sock", socket).Replace(string(block[1]))
	for _, address := range []string{grpc, http, socket} {
		if !strings.Contains(settings, address) {
			t.Fatalf("the configuration of %s lacks a place for %s", page, address)
		}
	}
	settings += "  telemetry: {metrics: {level: none}}\n"
	file := filepath.Join(folder, "collector.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	cmd := exec.Command(peer.CollectorProgram(t), "--config", file)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of the Collector:\n%s", log)
		}
	})
	testplugin.WaitFor(t, "the Collector", func() bool {
		conn, err := net.Dial("tcp", grpc)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return grpc
}

// freeAddress returns an address of this machine with a free port.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
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
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpointURL("http://"+startCollector(t, folder, socket)))
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
	testplugin.WaitFor(t, "the spans in the Collector's queue", func() bool { return strings.Count(r.printed(t), `"span-`) >= spans })
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
