package pythonplugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/examples/hellotest"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/test/testplugin"
)

// process is testdata/answers.py under the host's own launcher.
type process struct {
	*launch.Process
	t   *testing.T
	log *testplugin.Log
}

// start starts the plugin, with its socket in a folder whose name must be quoted in an
// address.
func start(t *testing.T) *process {
	t.Helper()
	path := answers(t)
	sockets, err := os.MkdirTemp("/tmp", "py 50%41?#-")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, log: &testplugin.Log{}}
	ctx, cancel := context.WithTimeout(t.Context(), hellotest.Patience)
	defer cancel()
	p.Process, err = launch.Start(ctx, launch.Command{
		Name: "answers", Path: path, Environ: []string{"PATH=" + os.Getenv("PATH")},
		SocketDirs: []string{sockets}, Log: slog.New(slog.NewTextHandler(p.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hellotest.Patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := os.Remove(sockets); err != nil { // empty, or the plugin has left something
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the plugin's log:\n%s", p.log)
		}
	})
	return p
}

// configure configures the plugin with ANSWERS_CONFIGURE=mode, and gives its
// remarks.
func (p *process) configure(mode string) []string {
	p.t.Helper()
	answer, err := pluginv1.NewLifecycleClient(p.Conn()).Configure(p.t.Context(),
		&pluginv1.ConfigureRequest{Env: map[string]string{"ANSWERS_CONFIGURE": mode}})
	if err != nil {
		p.t.Fatal(err)
	}
	var remarks []string
	for _, d := range answer.GetDiagnostics() {
		remarks = append(remarks, fmt.Sprintf("%v %s: %s", d.GetSeverity(), d.GetPath(), d.GetText()))
	}
	return remarks
}

// export sends a batch and returns the spans that the plugin counted as rejected and as
// filtered, or its error as a host reads it.
func (p *process) export(ctx context.Context, names ...string) (rejected int64, filtered []string, fault *wire.Error) {
	ctx = metadata.AppendToOutgoingContext(ctx, wire.MetaBatchID, "b1", wire.MetaAttempt, "1")
	var trailer metadata.MD
	answer, err := coltracepb.NewTraceServiceClient(p.Conn()).Export(ctx, hellotest.Batch(names...), grpc.Trailer(&trailer))
	return answer.GetPartialSuccess().GetRejectedSpans(), trailer.Get(wire.MetaFiltered), wire.FromStatus(err)
}

func TestAnswers(t *testing.T) {
	p := start(t)
	if remarks := p.configure(""); remarks != nil {
		t.Fatalf("remarks %q, want none", remarks)
	}
	for _, tc := range []struct {
		spans    string
		rejected int64
		filtered []string
		want     wire.Error
		text     string
	}{
		{spans: "fine"},
		{spans: ""},
		{spans: "partial fine", rejected: 1},
		{spans: "drop fine drop", filtered: []string{"by-name=2"}},
		{spans: "drop", filtered: []string{"by-name=1"}},
		{spans: "permanent drop", want: wire.Error{Code: "INVALID_ARGUMENT", Final: true}, text: "the back end does not know this token"},
		{spans: "retry", want: wire.Error{Code: "UNAVAILABLE", After: 2500 * time.Millisecond}, text: "the back end is restarting"},
		{spans: "broken", want: wire.Error{Code: "UNAVAILABLE"}, text: "ConnectionError: connection reset"},
		{spans: "code", want: wire.Error{Code: "PERMISSION_DENIED", Final: true}, text: "not you"},
		{spans: "throttled", want: wire.Error{Code: "RESOURCE_EXHAUSTED", After: 3 * time.Second}, text: "too much"},
		{spans: "bug", want: wire.Error{Code: "INTERNAL", Final: true}, text: "KeyError: 'no such key'"},
		{spans: "other", want: wire.Error{Code: "INTERNAL", Final: true}, text: "TypeError: export returned False: want None, which means delivered, or a Partial"},
		{spans: "exit", want: wire.Error{Code: "INTERNAL", Final: true}, text: "SystemExit: 3"},
		{spans: "words", want: wire.Error{Code: "INVALID_ARGUMENT", Final: true}, text: "?\u00e4\n" + strings.Repeat("x", 1020) + "\u2026"},
	} {
		t.Run(tc.spans, func(t *testing.T) {
			rejected, filtered, fault := p.export(t.Context(), strings.Fields(tc.spans)...)
			if rejected != tc.rejected || !cmp.Equal(filtered, tc.filtered) {
				t.Errorf("rejected %d, filtered %q; want %d, %q", rejected, filtered, tc.rejected, tc.filtered)
			}
			if fault == nil {
				fault = &wire.Error{}
			}
			text := ""
			if fault.Err != nil {
				text = fault.Err.Error()
			}
			if fault.Code != tc.want.Code || fault.Final != tc.want.Final || fault.After != tc.want.After || text != tc.text {
				t.Errorf("error %s, final %v, after %v, %q\nwant %s, %v, %v, %q",
					fault.Code, fault.Final, fault.After, text, tc.want.Code, tc.want.Final, tc.want.After, tc.text)
			}
		})
	}
	testplugin.WaitFor(t, "stray prints and stacks in the log", func() bool {
		for _, pattern := range []string{
			`msg="a stray print" stream=stderr`, `msg="a stray write" stream=stderr`,
			`level=ERROR msg="export: KeyError: 'no such key'" .*stack=.*answers.py.*KeyError`,
		} {
			if !regexp.MustCompile(pattern).MatchString(p.log.String()) {
				return false
			}
		}
		return true
	})
}

func TestConfigure(t *testing.T) {
	for mode, want := range map[string][]string{
		"":     nil,
		"warn": {"SEVERITY_WARNING ANSWERS_CONFIGURE: is odd"},
		"errors": {
			"SEVERITY_ERROR a: is wrong",
			"SEVERITY_ERROR b.c: is wrong too",
		},
		"raise": {"SEVERITY_ERROR ANSWERS_CONFIGURE: is 'raise': want another"},
		"bug":   {"SEVERITY_ERROR : KeyError: 'no such key'"},
		"exit":  {"SEVERITY_ERROR : SystemExit: no licence"},
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			p := start(t)
			if _, _, fault := p.export(t.Context(), "fine"); fault == nil || fault.Code != "FAILED_PRECONDITION" || fault.Error() != "plugin is not configured, want ready" {
				t.Errorf("Export before Configure: %v", fault)
			}
			if diff := cmp.Diff(want, p.configure(mode)); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
			_, _, fault := p.export(t.Context(), "fine")
			if refused := want != nil && mode != "warn"; refused != (fault != nil && fault.Code == "FAILED_PRECONDITION") {
				t.Errorf("Export after Configure: %v", fault)
			}
			_, err := pluginv1.NewLifecycleClient(p.Conn()).Configure(t.Context(), &pluginv1.ConfigureRequest{})
			if fault := wire.FromStatus(err); fault == nil || fault.Code != "FAILED_PRECONDITION" {
				t.Errorf("second Configure: %v, want FAILED_PRECONDITION", err)
			}
		})
	}
}

// A call in flight finishes after SIGTERM. SIGINT is for the service alone.
func TestSIGTERMDrains(t *testing.T) {
	p := start(t)
	p.configure("")
	answered := make(chan *wire.Error, 1)
	go func() { // ends with the call
		_, _, fault := p.export(t.Context(), "slow")
		answered <- fault
	}()
	testplugin.WaitFor(t, "the call in the log", func() bool { return strings.Contains(p.log.String(), `msg="slow begins"`) })
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM} {
		if err := syscall.Kill(p.PID(), sig); err != nil {
			t.Fatal(err)
		}
	}
	if fault := <-answered; fault != nil {
		t.Errorf("the call in flight: %s %v, want OK", fault.Code, fault)
	}
	select {
	case <-p.Done():
	case <-time.After(hellotest.Patience):
		t.Fatalf("the plugin does not end within %v", hellotest.Patience)
	}
	if exit := p.Exit(); exit != "exit status 0" {
		t.Errorf("the plugin ended: %s", exit)
	}
}

// Standard input ends while a call hangs that hears of nothing.
func TestDeafCallDoesNotKeepThePlugin(t *testing.T) {
	sockets, err := os.MkdirTemp("/tmp", "py")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	cmd := exec.CommandContext(t.Context(), answers(t))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), wire.CookieKey + "=" + wire.CookieValue, wire.EnvSocketDir + "=" + sockets}
	log := &testplugin.Log{}
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	handshake, err := io.ReadAll(stdout) // it ends there, and no reader waits for more
	fields := strings.Split(string(handshake), "|")
	if err != nil || len(fields) != 6 || fields[2] != "unix" || !strings.HasSuffix(fields[5], "\n") {
		t.Fatalf("handshake %q, %v\n%s", handshake, err, log)
	}
	conn, err := grpc.NewClient("unix:"+fields[3], grpc.WithTransportCredentials(wire.PeerCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := pluginv1.NewLifecycleClient(conn).Configure(t.Context(), &pluginv1.ConfigureRequest{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { // ends with the plugin
		_, err := coltracepb.NewTraceServiceClient(conn).Export(t.Context(), hellotest.Batch("deaf"))
		done <- err
	}()
	testplugin.WaitFor(t, "the call in the log", func() bool { return strings.Contains(log.String(), "deaf begins") })
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	patience := time.AfterFunc(hellotest.Patience, func() { _ = cmd.Process.Kill() })
	if err := cmd.Wait(); err == nil || err.Error() != "exit status 1" {
		t.Errorf("the plugin ended: %v, want exit status 1\n%s", err, log)
	}
	patience.Stop()
	if err := <-done; err == nil {
		t.Error("the call that hangs was answered OK")
	}
	for _, want := range []string{"host closed standard input without shutdown", "1 calls in flight did not end in time"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
}

// The service is killed: the plugin, its child and the folder of its socket go
// too.
func TestServiceIsKilled(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "py")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	s := hellotest.Start(t, "SERVE_TRACING_EXPORTER_PLUGIN=answers="+answers(t), "ANSWERS_CONFIGURE=child", "TMPDIR="+tmp, "XDG_RUNTIME_DIR=")
	var ids []int
	for _, pattern := range []string{`plugin is ready" .*\bpid=(\d+)`, `\bchild=(\d+)`} {
		id, err := strconv.Atoi(s.Await(s.Log, pattern, 1)[0])
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "the end of plugin and child", func() bool { return testplugin.Gone(ids[0]) && testplugin.Gone(ids[1]) })
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind in the temporary folder: %v, %v", left, err)
	}
}
