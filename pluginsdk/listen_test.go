package pluginsdk_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

// listening is a process of this test binary, run by hand with --listen.
type listening struct {
	cmd            *exec.Cmd
	stdout, stderr *output
	ended          chan error
}

// socketFolder is a folder for sockets; tb.TempDir is too long a path for them.
func socketFolder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sdk")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startListening runs the plugin with args. It is killed in the end, if it lives.
func startListening(tb testing.TB, environ []string, args ...string) *listening {
	tb.Helper()
	l := &listening{cmd: exec.Command(os.Args[0], args...), stdout: &output{}, stderr: &output{}, ended: make(chan error, 1)}
	l.cmd.Env = slices.Concat(childEnviron(tb), []string{envMode + "=plugin"}, environ)
	l.cmd.Stdout, l.cmd.Stderr = l.stdout, l.stderr
	if err := l.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		l.ended <- l.cmd.Wait()
		close(done)
	}()
	tb.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-done
	})
	return l
}

// end sends a signal, waits for a clean end and returns the output after the line to
// paste.
func (l *listening) end(tb testing.TB, signal os.Signal) string {
	tb.Helper()
	if err := l.cmd.Process.Signal(signal); err != nil {
		tb.Fatal(err)
	}
	if err := receive(tb, l.ended, "the plugin process to end"); err != nil {
		tb.Errorf("end: %v; log:\n%s", err, l.stderr.clipped())
	}
	_, printed, _ := strings.Cut(l.stdout.String(), "\n")
	return printed
}

// attach connects as a host does.
func attach(tb testing.TB, socket string) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

func export(ctx context.Context, conn *grpc.ClientConn, spans ...string) error {
	_, err := coltracepb.NewTraceServiceClient(conn).Export(ctx, named(spans...))
	return err
}

func TestListenServesHostsThatComeAndGo(t *testing.T) {
	socket := filepath.Join(socketFolder(t), "dev.sock")
	l := startListening(t, []string{"TEST_VALUE=v", "NOT_DECLARED=x"}, "--listen", "unix://"+socket)
	l.stdout.await(t, "\n")
	if got, want := l.stdout.String(), "SERVE_TRACING_EXPORTER_PLUGIN=unix://"+socket+"\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if info, err := os.Lstat(socket); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket is %v, %v; want mode 0600", info, err)
	}
	first, second := attach(t, socket), attach(t, socket)
	about, err := pluginv1.NewLifecycleClient(first).Describe(t.Context(), &pluginv1.DescribeRequest{})
	if err != nil || about.GetName() != "test" {
		t.Errorf("Describe: %v, %v", about, err)
	}
	health, err := healthpb.NewHealthClient(first).Check(t.Context(), &healthpb.HealthCheckRequest{Service: wire.HealthService})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", health, err)
	}
	for _, conn := range []*grpc.ClientConn{first, second} {
		if err := export(t.Context(), conn, "environment"); err != nil {
			t.Errorf("Export: %v", err)
		}
	}
	if _, err := pluginv1.NewLifecycleClient(second).Flush(t.Context(), &pluginv1.FlushRequest{}); err != nil {
		t.Errorf("Flush: %v", err)
	}
	refuses(t, second)
	_ = first.Close()
	_ = second.Close()

	third := attach(t, socket)
	answers := make(chan error, 1)
	go func() { answers <- export(t.Context(), third, "slow") }()
	l.stdout.await(t, "begun\n")
	printed := l.end(t, syscall.SIGTERM)
	if err := receive(t, answers, "the answer to the Export in flight"); err != nil {
		t.Errorf("Export in flight: %v", err)
	}
	environment := "Getenv \"v\" os \"v\" HOME \"\" other \"\"\n"
	if want := strings.Repeat(environment, 2) + "flushed\nbegun\nflushed\nshut down\n"; printed != want {
		t.Errorf("exporter saw %q, want %q", printed, want)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("socket is still there: %v", err)
	}
}

// refuses checks that a host which attached can neither configure nor end the
// plugin.
func refuses(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	lifecycle := pluginv1.NewLifecycleClient(conn)
	_, configure := lifecycle.Configure(t.Context(), &pluginv1.ConfigureRequest{})
	_, shutdown := lifecycle.Shutdown(t.Context(), &pluginv1.ShutdownRequest{})
	for what, err := range map[string]error{"Configure": configure, "Shutdown": shutdown} {
		if codeOf(err) != "FAILED_PRECONDITION" || !strings.Contains(err.Error(), "started by hand") {
			t.Errorf("%s: %v, want FAILED_PRECONDITION", what, err)
		}
	}
	if err := conn.Invoke(t.Context(), "/plugin.GRPCController/Shutdown", &pluginv1.ShutdownRequest{}, &pluginv1.ShutdownResponse{}); codeOf(err) != "UNIMPLEMENTED" {
		t.Errorf("go-plugin's Shutdown: %v, want UNIMPLEMENTED", err)
	}
}

func TestListenEndsOnInterrupt(t *testing.T) {
	socket := filepath.Join(socketFolder(t), "dev.sock")
	l := startListening(t, nil, "--listen="+socket)
	l.stdout.await(t, "\n")
	if printed := l.end(t, os.Interrupt); printed != "flushed\nshut down\n" {
		t.Errorf("exporter saw %q", printed)
	}
}

// TestListenDebugIgnoresDeadlines, which end a call without --debug.
func TestListenDebugIgnoresDeadlines(t *testing.T) {
	for _, c := range []struct {
		flags []string
		line  string
		want  string
	}{
		{nil, "", "cancelled\n"},
		{[]string{"--debug"}, " SERVE_TRACING_EXPORT_TIMEOUT=1h SERVE_TRACING_MAX_AGE=24h", "finished\n"},
	} {
		t.Run(fmt.Sprint(c.flags), func(t *testing.T) {
			socket := filepath.Join(socketFolder(t), "dev.sock")
			l := startListening(t, nil, append([]string{"--listen", socket}, c.flags...)...)
			l.stdout.await(t, "SERVE_TRACING_EXPORTER_PLUGIN=unix://"+socket+c.line+"\n")
			conn := attach(t, socket)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answers := make(chan error, 1)
			go func() { answers <- export(ctx, conn, "tell") }()
			l.stdout.await(t, "begun\n")
			cancel() // what the end of a deadline is for the other side
			if err := receive(t, answers, "the answer"); codeOf(err) != "CANCELLED" {
				t.Errorf("Export: %v", err)
			}
			_ = conn.Close()
			l.stdout.await(t, c.want)
			l.end(t, syscall.SIGTERM)
		})
	}
}

func TestListenTakesTheSocketOfTheDeadOnly(t *testing.T) {
	socket := filepath.Join(socketFolder(t), "dev.sock")
	dead := startListening(t, nil, "--listen", socket)
	dead.stdout.await(t, "\n")
	if err := dead.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = receive(t, dead.ended, "the plugin to die")
	if _, err := os.Lstat(socket); err != nil {
		t.Fatalf("the dead one left no socket, so this test shows nothing: %v", err)
	}

	live := startListening(t, nil, "--listen", socket)
	live.stdout.await(t, "\n")
	late := startListening(t, nil, "--listen", socket)
	if err := receive(t, late.ended, "the second one to give up"); err == nil {
		t.Error("the second one ends well")
	}
	if want := fmt.Sprintf("listen at %q: another process listens there: end it, or choose another path\n", socket); late.stderr.String() != want {
		t.Errorf("the second one says %q, want %q", late.stderr, want)
	}
	if got := late.stdout.String(); got != "" {
		t.Errorf("the second one printed %q", got)
	}
	if err := export(t.Context(), attach(t, socket), "a"); err != nil {
		t.Errorf("the first one does not serve any more: %v", err)
	}
	live.end(t, syscall.SIGTERM)
}

func TestListenConfigures(t *testing.T) {
	folder := socketFolder(t)
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	document, long := file("c.yaml", "a: 1\n"), file("long.yaml", strings.Repeat("#", 1<<20+1))
	socket := filepath.Join(folder, "my plugin's.sock")

	l := startListening(t, []string{"TEST_CONSTRUCT=warn", "OTEL_SERVICE_NAME=shop"}, "--config", document, "--listen", socket)
	l.stdout.await(t, "\n")
	if got, want := l.stdout.String(), `SERVE_TRACING_EXPORTER_PLUGIN='unix://`+folder+`/my plugin'\''s.sock'`+"\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	l.stderr.await(t, `level=WARN msg="is odd" path=TEST_CONSTRUCT`)
	l.stderr.await(t, `config="a: 1\n"`)
	l.stderr.await(t, "ServiceName:shop PluginName:my plugin's")
	l.end(t, syscall.SIGTERM)

	for _, c := range []struct {
		name    string
		environ string
		args    []string
		want    string
	}{
		{"settings", "TEST_CONSTRUCT=fail", nil, "TEST_CONSTRUCT: \"fail\" is not allowed\na.b: document: a.b: is missing\nand more\n"},
		{"panic", "TEST_CONSTRUCT=panic", nil, "construct exporter: panic: constructor's panic\n"},
		{"no document", "A=", []string{"--config", "/nowhere/c.yaml"}, "--config \"/nowhere/c.yaml\": there is no such file; create it, or correct its path\n"},
		{"long document", "A=", []string{"--config", long}, fmt.Sprintf("--config %q: it has 1048577 bytes, want 1048576 at most\n", long)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := startListening(t, []string{c.environ}, append(c.args, "--listen", socket)...)
			if err := receive(t, l.ended, "the plugin to give up"); err == nil {
				t.Error("it ends well")
			}
			if got := l.stderr.String(); !strings.HasSuffix(got, c.want) || l.stdout.String() != "" {
				t.Errorf("says %q, prints %q, want %q and nothing", got, l.stdout, c.want)
			}
			if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a socket is left: %v", err)
			}
		})
	}
}

func TestListenRefusesWhatItCanNotUse(t *testing.T) {
	folder := socketFolder(t)
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(folder, strings.Repeat("x", 100))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen"}, "flag needs an argument: -listen; --help lists the flags for --listen"},
		{[]string{"--listen="}, `--listen "": names no socket: want a path, or unix:///PATH`},
		{[]string{"--listen", "unix:///x/"}, `--listen "unix:///x/": names no socket: want a path, or unix:///PATH`},
		{[]string{"--listen", "unix://x"}, `--listen "unix://x": the path in an address must be absolute: want unix:///x, or unix://./x for one in the working folder`},
		{[]string{"--listen", "localhost:4317"}, `--listen "localhost:4317": a plugin listens on a Unix socket only: want a path, or unix:///PATH`},
		{[]string{"--listen", "http://localhost/x"}, `--listen "http://localhost/x": a plugin listens on a Unix socket only: want a path, or unix:///PATH`},
		{[]string{"--listen", file}, fmt.Sprintf("listen at %q: there is a file that is not a socket: remove it, or choose another path", file)},
		{[]string{"--listen", long}, fmt.Sprintf("listen at %q: the path has %d bytes, the system takes 103: use a shorter one", long, len(long))},
		{[]string{"--listen", "/nowhere/x"}, `listen at "/nowhere/x": open /nowhere: no such file or directory`},
		{[]string{"--verbose", "--listen", file}, "flag provided but not defined: -verbose; --help lists the flags for --listen"},
		{[]string{"--listen", file, "more"}, `argument "more" is not known; --help lists the flags for --listen`},
	} {
		err := pluginsdk.Run(t.Context(), pluginsdk.Env{Args: append([]string{"/plugins/test"}, c.args...)}, testSpec)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: error is %v\nwant %s", c.args, err, c.want)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "keep" {
		t.Errorf("the file that stood in the way is now %q, %v", content, err)
	}
	var help output
	env := pluginsdk.Env{Args: []string{"/plugins/test", "--listen", file, "--help"}, Stdout: &help}
	if err := pluginsdk.Run(t.Context(), env, testSpec); err != nil || !strings.Contains(help.String(), "--listen ADDR") {
		t.Errorf("--help after --listen: %v, %q", err, help.String())
	}
}

// TestListenBoundsAllHostsTogether: each of two hosts keeps to the limit of one
// call at a time, and does not know of the other.
func TestListenBoundsAllHostsTogether(t *testing.T) {
	socket := filepath.Join(socketFolder(t), "dev.sock")
	var inside, most, calls atomic.Int32
	spec := pluginsdk.Spec{
		Name:   "one-by-one",
		Limits: pluginsdk.Limits{MaxConcurrency: 1},
		Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				<-time.After(5 * time.Millisecond)
				calls.Add(1)
				return nil
			}), nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var stdout, stderr output
	env := pluginsdk.Env{Args: []string{"p", "--listen", socket}, Stdout: &stdout, Stderr: &stderr}
	go func() { ended <- pluginsdk.Run(ctx, env, spec) }()
	stdout.await(t, "\n")
	var hosts sync.WaitGroup
	for range 4 {
		conn := attach(t, socket)
		hosts.Go(func() {
			for range 5 {
				if err := export(t.Context(), conn, "a"); err != nil {
					t.Errorf("Export: %v", err)
				}
			}
		})
	}
	hosts.Wait()
	cancel()
	if err := receive(t, ended, "Run to return"); err != nil {
		t.Errorf("Run: %v; log:\n%s", err, stderr.clipped())
	}
	if most.Load() != 1 || calls.Load() != 20 {
		t.Errorf("%d calls, %d at a time, want 20 and 1", calls.Load(), most.Load())
	}
}

// TestListenGrantsWhatIsDeclared: the plugin gets the declared variables and the
// variables of every plugin, as from a host.
func TestListenGrantsWhatIsDeclared(t *testing.T) {
	var got []string
	spec := pluginsdk.Spec{
		Name: "reader",
		Env:  []string{"DECLARED", "FAMILY_*"},
		Exporter: func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
			for _, name := range []string{"DECLARED", "DECLARED_NOT", "FAMILY_A", "FAMILY", "SECRET", "PATH", "LC_ALL", "https_proxy"} {
				got = append(got, name+"="+s.Getenv(name))
			}
			return nil, errors.New("seen")
		},
	}
	env := pluginsdk.Env{
		Args: []string{"p", "--listen", filepath.Join(socketFolder(t), "dev.sock")},
		Environ: []string{
			"DECLARED=1", "DECLARED_NOT=2", "FAMILY_A=3", "FAMILY=4", "SECRET=5", "PATH=6", "LC_ALL=7", "https_proxy=8", "odd",
		},
	}
	if err := pluginsdk.Run(t.Context(), env, spec); err == nil || err.Error() != "seen" {
		t.Errorf("Run: %v", err)
	}
	want := []string{"DECLARED=1", "DECLARED_NOT=", "FAMILY_A=3", "FAMILY=", "SECRET=", "PATH=6", "LC_ALL=7", "https_proxy=8"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("variables (-want +got):\n%s", d)
	}
}

// TestListenAtOnceConcurrentSafe: of several that find the socket of a dead
// process, one gets its place.
func TestListenAtOnceConcurrentSafe(t *testing.T) {
	for range 5 {
		rivals(t, filepath.Join(socketFolder(t), "dev.sock"))
	}
}

func rivals(t *testing.T, socket string) {
	t.Helper()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const count = 8
	errs := make(chan error, count)
	var stdout output
	for range count {
		env := pluginsdk.Env{Args: []string{"p", "--listen", socket}, Stdout: &stdout}
		go func() { errs <- pluginsdk.Run(ctx, env, testSpec) }()
	}
	for range count - 1 {
		if err := receive(t, errs, "all but one to give up"); err == nil || !strings.Contains(err.Error(), "another process listens there") {
			t.Errorf("error is %v", err)
		}
	}
	stdout.await(t, "\n")
	if err := export(t.Context(), attach(t, socket), "a"); err != nil {
		t.Errorf("the one that is left does not serve: %v", err)
	}
	cancel()
	if err := receive(t, errs, "the last one to end"); err != nil {
		t.Errorf("the last one: %v", err)
	}
	if got := strings.Count(stdout.String(), "SERVE_TRACING_EXPORTER_PLUGIN="); got != 1 {
		t.Errorf("%d print the line to paste, want 1", got)
	}
}
