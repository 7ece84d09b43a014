package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/test/testplugin"
)

// command runs the command tree in this process and returns its output.
func command(tb testing.TB, env map[string]string, args ...string) (stdout, stderr string, err error) {
	tb.Helper()
	root := newRoot(func(name string) string { return env[name] }, nil)
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err = root.ExecuteContext(tb.Context())
	return out.String(), errs.String(), err
}

// link returns the path of this test binary under another name.
func link(tb testing.TB, name string) string {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), name)
	if err := os.Symlink(exe, path); err != nil {
		tb.Fatal(err)
	}
	return path
}

// TestSignalLeavesNoProcess interrupts commands whose plugin never answers.
func TestSignalLeavesNoProcess(t *testing.T) {
	spans := filepath.Join(t.TempDir(), "spans")
	if err := os.WriteFile(spans, encodedSpans(t, "one"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			stuck := link(t, "stuck")
			cmd := exec.Command(link(t, "servetrace"), "plugin", "run", stuck, "--spans", spans, "--format", "proto", "--timeout", "5m")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := 0
			testplugin.WaitFor(t, "a call to the plugin", func() bool {
				text, err := os.ReadFile(stuck + ".pid")
				if err != nil {
					return false
				}
				pid, err = strconv.Atoi(string(text))
				return err == nil
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the code is looked at below
			if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
				t.Errorf("exit code %d, want %d; it said:\n%s", code, exitInterrupted, stderr.String())
			}
			if !strings.Contains(stderr.String(), "1 not taken  CANCELLED") {
				t.Errorf("no accounting of the rejected spans:\n%s", stderr.String())
			}
			testplugin.WaitFor(t, "the plugin's end", func() bool { return testplugin.Gone(pid) })
		})
	}
}

// receiver is a plain OTLP receiver that the command did not start.
type receiver struct {
	coltracepb.UnimplementedTraceServiceServer
	mu    sync.Mutex
	names []string
}

func (r *receiver) Export(_ context.Context, request *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range request.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				r.names = append(r.names, span.GetName())
			}
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// listen serves r and returns the address.
func (r *receiver) listen(t *testing.T) (address string) {
	t.Helper()
	dir := testplugin.SocketFolder(t)
	socket := filepath.Join(dir, "otlp.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return "unix://" + socket
}

// TestAttached goes through the commands with a plugin that runs already: it
// only gets spans.
func TestAttached(t *testing.T) {
	r := &receiver{}
	address := r.listen(t)
	env := map[string]string{"SERVE_TRACING_EXPORTER_PLUGIN": address}

	stdout, _, err := command(t, env, "plugin", "list")
	if err != nil || !strings.Contains(stdout, "otlp  attached  "+address) {
		t.Errorf("list: %v\n%s", err, stdout)
	}
	stdout, _, err = command(t, env, "plugin", "info", address)
	if err != nil || !strings.Contains(stdout, "a plain OTLP receiver") || !strings.Contains(stdout, address) {
		t.Errorf("info: %v\n%s", err, stdout)
	}
	stdout, _, err = command(t, env, "plugin", "explain")
	if err != nil || !strings.Contains(stdout, "variables  none") || strings.Contains(stdout, "PATH=") {
		t.Errorf("explain: %v\n%s", err, stdout)
	}
	spans := filepath.Join(t.TempDir(), "spans")
	if err := os.WriteFile(spans, framed(encodedSpans(t, "one", "two"), encodedSpans(t, "three")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := command(t, env, "plugin", "run", address, "--spans", spans, "--format", "proto")
	if err != nil || !strings.Contains(stderr, "3 delivered") {
		t.Errorf("run: %v\n%s", err, stderr)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.names, " "); got != "one two three" {
		t.Errorf("received %q, want one two three", got)
	}
	if _, _, err := command(t, env, "plugin", "test", address); exitCode(t.Context(), err) != exitUsage {
		t.Errorf("test of an address: %v, want an error of usage", err)
	}
}

// TestListeningPlugin goes the way of an author with a debugger: a plugin of
// the SDK that listens by itself, the line that it prints, and commands that
// attach and leave it running.
func TestListeningPlugin(t *testing.T) {
	dir := testplugin.SocketFolder(t)
	cmd := exec.Command(link(t, "echo"), "--listen", filepath.Join(dir, "echo.sock"))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	lines := bufio.NewScanner(stdout)
	address := ""
	for address == "" && lines.Scan() {
		address, _ = strings.CutPrefix(lines.Text(), "SERVE_TRACING_EXPORTER_PLUGIN=")
		if !strings.HasPrefix(address, "unix://") {
			address = ""
		}
	}
	spans := filepath.Join(dir, "spans")
	if err := os.WriteFile(spans, encodedSpans(t, "one", "two"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SERVE_TRACING_EXPORTER_PLUGIN": address, "ECHO_VALUE": "hush"}
	for _, c := range []struct{ args, stdout, stderr string }{
		{"info " + address, "name       echo\n", ""},
		{"list", "echo  attached  " + address, ""},
		{"explain", "variables  none\n  declares   ECHO_*\n", ""},
		{"run " + address + " --format proto --spans " + spans, "", "2 delivered"},
		{"run " + address + " --format proto --spans " + spans, "", "2 delivered"},
	} {
		out, errs, err := command(t, env, append([]string{"plugin"}, strings.Fields(c.args)...)...)
		if err != nil || !strings.Contains(out, c.stdout) || !strings.Contains(errs, c.stderr) {
			t.Errorf("%s: %v, want %q and %q\n%s%s", c.args, err, c.stdout, c.stderr, out, errs)
		}
	}
	ended = true
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var rest strings.Builder
	for lines.Scan() {
		rest.WriteString(lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the plugin did not end well: %v", err)
	}
	if got := strings.Count(rest.String(), "batch 1 attempt 1"); got != 2 {
		t.Errorf("%d batches arrived, want 2:\n%s", got, rest.String())
	}
}
