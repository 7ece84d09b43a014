package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/servetrace/servetrace/test/testplugin"
)

// capturable starts a relay with captures. It returns the address of its admin listener,
// and a function that sends a span.
func capturable(t *testing.T) (r *relayInTest, at string, send func(name string)) {
	t.Helper()
	r = startRelayWith(t, testplugin.Install(t, "record"), []string{"SERVE_ADMIN_CAPTURE=true"}, "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	admin := regexp.MustCompile(`admin=(\S+)`).FindStringSubmatch(r.log.String())
	if admin == nil {
		t.Fatal("the log has no admin listener")
	}
	conn := dialRelay(t, r.endpoint(t, "grpc"))
	t.Cleanup(func() { conn.Close() })
	return r, admin[1], func(name string) {
		t.Helper()
		if _, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), named(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCaptureAndReplay records spans of a running relay in both forms until a signal,
// and replays them.
func TestCaptureAndReplay(t *testing.T) {
	r, admin, send := capturable(t)
	dir := t.TempDir()
	for _, format := range []string{formatJSON, formatProto} {
		file := filepath.Join(dir, "spans."+format)
		captured, stderr := startCapture(t, admin, file, send, "--for", "1m", "--format", format)
		if err := captured.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := captured.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", format, err, stderr)
		}
		plugin := testplugin.Install(t, "record")
		out, code := runAsCommand(t, "plugin", "run", plugin, "--spans", file, "--format", format)
		if spans := testplugin.Spans(t, plugin); code != 0 || spans["captured"] == 0 || len(spans) != 1 {
			t.Errorf("%s: exit code %d, spans %v\n%s", format, code, spans, out)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v; want mode 0600", info, err)
		}
	}
	r.stop(t)
}

// startCapture starts a capture into a file, and returns when spans are in the file. Spans
// before the beginning are not captured, so send is called again and again.
func startCapture(t *testing.T, admin, file string, send func(string), args ...string) (*exec.Cmd, *testplugin.Log) {
	t.Helper()
	captured := exec.Command(ownBinary(t, "servetrace"), append([]string{"capture", "--addr", admin, "--file", file}, args...)...)
	stderr := new(testplugin.Log)
	captured.Stderr = stderr
	if err := captured.Start(); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "spans in the file", func() bool {
		send("captured")
		text, _ := os.ReadFile(file)
		return bytes.Contains(text, []byte("captured"))
	})
	return captured, stderr
}

// TestCaptureOfAServiceThatEnds: the spans before the end of the service are kept.
func TestCaptureOfAServiceThatEnds(t *testing.T) {
	r, admin, send := capturable(t)
	file := filepath.Join(t.TempDir(), "spans.json")
	captured, stderr := startCapture(t, admin, file, send, "--for", "10m")
	r.stop(t)
	if err := captured.Wait(); err != nil || !strings.Contains(stderr.String(), "; the service has ended before the recording\n") || strings.Contains(stderr.String(), "EOF") {
		t.Errorf("%v\n%s", err, stderr)
	}
	text, err := os.ReadFile(file)
	if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); err != nil || !strings.HasSuffix(lines[len(lines)-1], "}") {
		t.Errorf("%v, the last line is %q", err, lines[len(lines)-1])
	}
}

// TestCaptureWithoutReader: a signal ends a capture that waits for the reader of its output.
func TestCaptureWithoutReader(t *testing.T) {
	r, admin, send := capturable(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	captured := exec.Command(ownBinary(t, "servetrace"), "capture", "--addr", admin, "--for", "10m")
	var stderr testplugin.Log
	captured.Stdout, captured.Stderr = writer, &stderr
	if err := captured.Start(); err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	begun, large := make(chan struct{}), make(chan struct{})
	go func() { // ends in the middle of the large span
		lines := bufio.NewReader(reader)
		_, _ = lines.ReadByte()
		close(begun)
		_, _ = lines.ReadString('X')
		close(large)
	}()
	testplugin.WaitFor(t, "the beginning of the capture", func() bool {
		send("captured")
		select {
		case <-begun:
			return true
		default:
			return false
		}
	})
	send(strings.Repeat("X", 512<<10)) // more than a pipe holds
	<-large
	if err := captured.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = captured.Wait() // its status is compared
	if code := captured.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stderr.String(), "the output takes no more, so its last batch is not complete") {
		t.Errorf("exit code %d\n%s", code, &stderr)
	}
	r.stop(t)
}

// TestCaptureErrors: wrong flags, a service without captures, and no service.
func TestCaptureErrors(t *testing.T) {
	at := serviceWith(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--addr", at}, exitNo, "captures are off: set SERVE_ADMIN_CAPTURE=true"},
		{[]string{"--addr", unused(t)}, exitNo, "connection refused; does the service run with SERVE_ADMIN_PORT set?"},
		{[]string{"--for", "1ms"}, exitUsage, "--for 1ms: want a duration from 1s to 1h"},
		{[]string{"--for", "61m"}, exitUsage, "--for 1h1m0s: want a duration from 1s to 1h"},
		{[]string{"--bytes", "many"}, exitUsage, `--bytes "many": want a size above zero and of at most 1GiB`},
		{[]string{"--bytes", "2GiB"}, exitUsage, `--bytes "2GiB": want a size above zero and of at most 1GiB`},
		{[]string{"--format", "xml"}, exitUsage, `--format "xml": want json or proto`},
	} {
		cmd := newRoot(func(string) string { return "" }, nil)
		cmd.SetArgs(append([]string{"capture"}, c.args...))
		err := cmd.ExecuteContext(context.Background())
		if code := exitCode(t.Context(), err); code != c.code || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: exit code %d, %v; want %d, %s", c.args, code, err, c.code, c.want)
		}
	}
}
