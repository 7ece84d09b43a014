package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/test/testplugin"
)

func TestMain(m *testing.M) {
	testplugin.Main()
	becomeHost()
	goleak.VerifyTestMain(m)
}

func command(t *testing.T, mode string) (Command, *testplugin.Log) {
	t.Helper()
	log := &testplugin.Log{}
	return Command{
		Name: "test",
		Path: testplugin.Install(t, mode),
		// Under -race a process sleeps for a second at its end by default.
		Environ: []string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"},
		Log:     textLog(log),
	}, log
}

func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func start(t *testing.T, cmd Command) *Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := Start(ctx, cmd)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		p.Kill("the test has ended")
		stop(t, p, time.Minute)
	})
	return p
}

func stop(t *testing.T, p *Process, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestPluginOfTheSDK(t *testing.T) {
	cmd, _ := command(t, "record")
	p := start(t, cmd)
	about, err := pluginv1.NewLifecycleClient(p.Conn()).Describe(t.Context(), &pluginv1.DescribeRequest{})
	if err != nil {
		t.Fatalf("Describe: %v", err)
	}
	if about.GetName() != "testplugin" || about.GetVersion() != "1.2.3" {
		t.Errorf("Describe = %v, want testplugin 1.2.3", about)
	}
	stop(t, p, time.Minute)
	if got := p.Exit(); got != "exit status 0" {
		t.Errorf("Exit = %q, want exit status 0", got)
	}
}

func TestPluginOfStockGoPlugin(t *testing.T) {
	cmd, _ := command(t, "stock")
	p := start(t, cmd)
	reply, err := healthpb.NewHealthClient(p.Conn()).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "plugin"})
	if err != nil || reply.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("Check = %v, %v, want SERVING", reply, err)
	}
	stop(t, p, time.Minute)
	if got := p.Exit(); got != "exit status 0" {
		t.Errorf("Exit = %q, want exit status 0: asked to end, not killed", got)
	}
}

func TestHazard19Reasons(t *testing.T) {
	file := func(mode os.FileMode, content string) func(*testing.T) string {
		return func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "plugin")
			if err := os.WriteFile(path, []byte(content), mode); err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	mode := func(m string) func(*testing.T) string {
		return func(t *testing.T) string { return testplugin.Install(t, m) }
	}
	for _, test := range []struct {
		name   string
		path   func(*testing.T) string
		reason Reason
		text   string
	}{
		{"missing", func(*testing.T) string { return "/nowhere/plugin" }, ReasonNotFound,
			"start PATH: there is no such file; check the path, or build the plugin"},
		{"folder", func(t *testing.T) string { return t.TempDir() }, ReasonNotExecutable,
			"start PATH: this is a folder; name the plugin's executable"},
		{"no permission", file(0o644, "#!/bin/sh\n"), ReasonNotExecutable,
			"start PATH: the file is not executable (mode 0644); if it is the plugin, run: chmod +x PATH"},
		{"other architecture", file(0o755, foreignELF()), ReasonArchitecture,
			"start PATH: it is built for s390x, this machine is OS/ARCH; build it with GOARCH=ARCH"},
		{"no program", file(0o755, "just text"), ReasonArchitecture,
			"start PATH: it is not a program for OS/ARCH: neither an ELF file nor a script with a first line like #!/usr/bin/python3"},
		{"no interpreter", file(0o755, "#!/nowhere/python\n"), ReasonOther,
			"start PATH: its interpreter or loader is missing (the first line of a script, or a libc): fork/exec PATH: no such file or directory"},
		{"interpreter is none", file(0o755, "#!/etc/passwd\n"), ReasonEnvironment,
			"start PATH: the kernel may not run it: its interpreter is not a program, its file system is mounted noexec, or a rule of the system forbids it; mend the script's first line, or name another place: fork/exec PATH: permission denied"},
		{"not a plugin", mode("hello"), ReasonNotPlugin,
			`start PATH: it ended before the handshake (exit status 0), its last line: "hello, world"; is it a servetrace plugin? Run it by hand to see`},
		{"refuses to start", mode("exit"), ReasonNotPlugin,
			`start PATH: it ended before the handshake (exit status 3), its last line: "no licence for this plugin"; is it a servetrace plugin? Run it by hand to see`},
		{"another host's", mode("alien"), ReasonNotPlugin,
			"start PATH: it is a go-plugin program of another host, whose magic cookie it wants; name a servetrace plugin, or build it with pluginsdk"},
		{"no threads", file(0o755, "#!/bin/sh\necho 'runtime: failed to create new OS thread (have 2 already; errno=11)' >&2\necho 'fatal error: newosproc' >&2\nexit 2\n"), ReasonEnvironment,
			"start PATH: this user or this cgroup may have no more processes or threads; raise the limit (ulimit -u, LimitNPROC=, pids.max), or run fewer: fatal error: newosproc"},
		{"newer version", mode("version:99"), ReasonVersion,
			"start PATH: the plugin speaks protocol version 99, this host version 1; upgrade the host, or build the plugin with an older pluginsdk"},
		{"older version", mode("version:0"), ReasonVersion,
			"start PATH: the plugin speaks protocol version 0, this host version 1; build the plugin with a newer pluginsdk"},
		{"net/rpc", mode("netrpc"), ReasonVersion,
			"start PATH: the plugin speaks netrpc over go-plugin core protocol 1, this host grpc over 1; build it with a pluginsdk of this host's version"},
		{"silent", mode("silent:1m"), ReasonTimeout,
			"start PATH: no handshake within the start timeout, without output; is it a servetrace plugin? Run it by hand to see"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, _ := command(t, "record")
			cmd.Path = test.path(t)
			limit := time.Minute // for what ends before
			if test.reason == ReasonTimeout {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := Start(ctx, cmd)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("Start = %v, want an *Error", err)
			}
			if e.Reason != test.reason {
				t.Errorf("reason %v, want %v", e.Reason, test.reason)
			}
			if got := normal(e.Error(), cmd.Path); got != test.text {
				t.Errorf("error\n%s\nwant\n%s", got, test.text)
			}
		})
	}
}

func TestNoiseBeforeHandshake(t *testing.T) {
	cmd, log := command(t, "noise:1000000")
	start(t, cmd)
	if !strings.Contains(log.String(), "noise noise") {
		t.Error("what the plugin printed before the handshake is not in the log")
	}
	if size := len(log.String()); size > 1<<20 {
		t.Errorf("log of %d bytes from one line", size)
	}
}

// The socket belongs to a process that is not killed with the plugin and accepts no
// connection.
func TestStartEndsInTimeAtADeafSocket(t *testing.T) {
	cmd, _ := command(t, "record")
	cmd.Path = deafSocket(t)
	run := newRunner(cmd)
	ctx, timeout := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := await(ctx, run); ended <- err }()
	testplugin.WaitFor(t, "the handshake", func() bool { return run.handshake.said() != nil })
	timeout(context.DeadlineExceeded)
	want := "start PATH: it named its socket, but does not answer there within the start timeout, without output; does another process hold the socket?"
	if got := normal(fmt.Sprint(<-ended), cmd.Path); got != want {
		t.Errorf("Start = %s, want %s", got, want)
	}
}

// deafSocket is a program that names a socket of this process, which listens
// and accepts nothing.
func deafSocket(t *testing.T) string {
	t.Helper()
	dir := testplugin.SocketFolder(t)
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	path := filepath.Join(dir, "plugin")
	script := fmt.Sprintf("#!/bin/sh\necho '1|1|unix|%s|grpc|'\nsleep 60\n", listener.Addr())
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHazard04StopEndsFrozenPlugin(t *testing.T) {
	cmd, _ := command(t, "record")
	p := start(t, cmd)
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Logf("Stop: %v", err) // a busy machine may need longer than Stop waits
	}
	testplugin.WaitFor(t, "the end of the process", func() bool { return testplugin.Gone(p.PID()) })
}

func TestHazard24CrashTakesGrandchildrenAlong(t *testing.T) {
	cmd, _ := command(t, "child")
	p := start(t, cmd)
	grandchild := testplugin.Received(t, cmd.Path)[0].PID
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	testplugin.WaitFor(t, "the grandchild's end", func() bool { return testplugin.Gone(grandchild) })
	if got := p.Exit(); !strings.HasPrefix(got, "signal: killed") {
		t.Errorf("Exit = %q, want signal: killed", got)
	}
}

func TestNothingIsLeft(t *testing.T) {
	base := testplugin.SocketFolder(t)
	before := openFiles(t)
	for _, mode := range []string{"record", "stock", "hello", "version:9"} {
		cmd, _ := command(t, mode)
		cmd.SocketDirs = []string{base}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		p, err := Start(ctx, cmd)
		cancel()
		if err == nil {
			stop(t, p, time.Minute)
		}
	}
	left, err := os.ReadDir(base)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the folder for sockets: %v, %v", left, err)
	}
	testplugin.WaitFor(t, "descriptors to be closed", func() bool { return openFiles(t) <= before })
}

func TestLongBaseFolderIsPassedOver(t *testing.T) {
	cmd, _ := command(t, "record")
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.SocketDirs = []string{long}
	start(t, cmd)
}

// busyFile is a program that its writer still has open.
func busyFile(t *testing.T) *os.File {
	t.Helper()
	exe, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skipf("no /bin/true: %v", err)
	}
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "busy"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(exe); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestHazard14BusyFileIsTriedAgain(t *testing.T) {
	cmd, log := command(t, "hello")
	f := busyFile(t)
	cmd.Path = f.Name()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := Start(ctx, cmd); ended <- err }()
	testplugin.WaitFor(t, "a start that found the file busy", func() bool {
		return strings.Contains(log.String(), "plugin's executable is open for writing: its start is tried again for a while")
	})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if err := <-ended; !errors.As(err, &e) || e.Reason != ReasonNotPlugin {
		t.Errorf("Start = %v, want it to have run", err)
	}
	if n := strings.Count(log.String(), "is tried again"); n != 1 {
		t.Errorf("said %d times that the file is busy, want once", n)
	}
}

func TestHazard14BusyFileIsGivenUp(t *testing.T) {
	t.Parallel() // it waits until the start gives up
	cmd, _ := command(t, "hello")
	cmd.Path = busyFile(t).Name()
	_, err := Start(t.Context(), cmd)
	want := "start PATH: another process has the file open for writing, still after 2s; let the copy end (see: fuser PATH), " +
		"and put a new file there by renaming it: fork/exec PATH: text file busy"
	if got := normal(fmt.Sprint(err), cmd.Path); got != want {
		t.Errorf("Start = %s\nwant %s", got, want)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	return len(files)
}
