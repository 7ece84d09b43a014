package main

import (
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

// TestCaptureAndReplay records spans of a running relay in both forms until a signal,
// and replays them.
func TestCaptureAndReplay(t *testing.T) {
	r := startRelayWith(t, testplugin.Install(t, "record"), []string{"SERVE_ADMIN_CAPTURE=true"}, "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	admin := regexp.MustCompile(`admin=(\S+)`).FindStringSubmatch(r.log.String())
	if admin == nil {
		t.Fatal("the log has no admin listener")
	}
	conn := dialRelay(t, r.endpoint(t, "grpc"))
	defer conn.Close()
	dir := t.TempDir()
	for _, format := range []string{formatJSON, formatProto} {
		file := filepath.Join(dir, "spans."+format)
		captured := exec.Command(ownBinary(t, "servetrace"), "capture", "--addr", admin[1], "--for", "1m", "--file", file, "--format", format)
		var stderr testplugin.Log
		captured.Stderr = &stderr
		if err := captured.Start(); err != nil {
			t.Fatal(err)
		}
		// Spans before the beginning are not captured, so spans come until the file has some.
		testplugin.WaitFor(t, "spans in the file", func() bool {
			_, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), named("captured"))
			if err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(file)
			return bytes.Contains(text, []byte("captured"))
		})
		if err := captured.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := captured.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", format, err, &stderr)
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
		{[]string{"--for", "1ms"}, exitUsage, "--for 1ms: want a duration of at least 1s"},
		{[]string{"--bytes", "many"}, exitUsage, `--bytes "many": want a size above zero`},
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
