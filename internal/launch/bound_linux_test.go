package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/servetrace/servetrace/test/testplugin"
)

// unkillable is a process that does not end before release, as if the kernel waited for a
// disk.
func unkillable(t *testing.T, mode string) (run *processRunner, release func()) {
	t.Helper()
	cmd, _ := command(t, mode)
	cmd.SocketDirs = []string{testplugin.SocketFolder(t)}
	run = newRunner(cmd)
	held := make(chan struct{})
	reap := run.child.awaitEnd
	run.child.awaitEnd = func(cmd *exec.Cmd) { <-held; reap(cmd) }
	return run, func() { close(held) }
}

// Start and Stop return at the end of their contexts, even if the kernel blocks.
func TestStartEndsThoughTheProcessDoesNot(t *testing.T) {
	run, release := unkillable(t, "silent:1m")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := await(ctx, run); ended <- err }()
	testplugin.WaitFor(t, "the process", func() bool { return run.child.PID() != 0 })
	cancel(errors.New("the host stops"))
	want := fmt.Sprintf("start PATH: start called off: the host stops, and process %d does not end after SIGKILL: "+
		"the kernel waits for a disk or a network file system; it is left behind", run.child.PID())
	var e *Error
	if err := <-ended; normal(fmt.Sprint(err), run.cmd.Path) != want || !errors.As(err, &e) || e.Reason != ReasonStopped || e.Report != nil {
		t.Errorf("Start = %v\nwant %s, without a report", err, want)
	}
	release()
	<-run.child.done
	testplugin.WaitFor(t, "the folder to be removed when the process has ended after all", func() bool {
		return isEmptyFolder(t, run.cmd.SocketDirs[0])
	})
}

// A start that has not even come to the process: the disk does not answer.
func TestStartEndsThoughTheDiskDoesNotAnswer(t *testing.T) {
	cmd, _ := pinned(t, "record")
	run := newRunner(cmd)
	held := make(chan struct{})
	run.program.newMemory = func(name string) (*os.File, error) { <-held; return newMemory(name) }
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := await(ctx, run)
	want := "start PATH: no handshake within the start timeout, and the kernel has not even started it: it waits for a disk or a network file system"
	var e *Error
	if normal(fmt.Sprint(err), cmd.Path) != want || !errors.As(err, &e) || e.Reason != ReasonTimeout {
		t.Errorf("Start = %v\nwant %s", err, want)
	}
	close(held)
	testplugin.WaitFor(t, "the folder to be removed", func() bool { return isEmptyFolder(t, run.cmd.SocketDirs[0]) })
}

func TestStopEndsThoughTheProcessDoesNot(t *testing.T) {
	run, release := unkillable(t, "record")
	start, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := await(start, run)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	want := fmt.Sprintf(`stop plugin "test": process %d does not end after SIGKILL`, p.PID())
	if err := p.Stop(ctx); err == nil || err.Error() != want {
		t.Errorf("Stop = %v, want %s", err, want)
	}
	release()
	stop(t, p, time.Minute)
}

// Hazard 5. Close is the end of the start's context.
func TestHazard05StartOfASlowHandshakeIsCalledOff(t *testing.T) {
	cmd, _ := command(t, "silent:1m")
	run := newRunner(cmd)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := await(ctx, run); ended <- err }()
	testplugin.WaitFor(t, "the process", func() bool { return run.child.PID() != 0 })
	cancel(errors.New("the host stops"))
	err := <-ended
	if got, want := normal(fmt.Sprint(err), cmd.Path), "start PATH: start called off: the host stops"; got != want {
		t.Errorf("Start = %s, want %s", got, want)
	}
	if !testplugin.Gone(run.child.PID()) {
		t.Error("the process is there when Start has returned")
	}
	var e *Error
	if !errors.As(err, &e) || e.Report == nil || !strings.Contains(e.Report.Killed, "called off") {
		t.Errorf("%#v has no report that says who killed it", err)
	}
}

// Hazard 3: a plugin that does not answer prints its stacks.
func TestHazard03Dump(t *testing.T) {
	for _, test := range []struct {
		name, mode string
		freeze     bool
	}{
		{"idle", "record", false},
		{"frozen", "record", true},
		{"frozen while it was spinning", "spin", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, _ := command(t, test.mode)
			p := start(t, cmd)
			if test.freeze {
				testplugin.Freeze(t, p.PID())
			}
			r := dumped(t, p)
			if !strings.HasPrefix(r.Stack, "SIGQUIT: quit\n") || !strings.Contains(r.Stack, "\ngoroutine 1 ") {
				t.Errorf("stack:\n%s", r.Stack)
			}
			if r.Killed != "it did not answer" || !strings.Contains(r.Exit, "by this host: it did not answer") {
				t.Errorf("killed %q, exit %q", r.Killed, r.Exit)
			}
		})
	}
}

// dumped has a process print its stacks, as one that did not answer.
func dumped(t *testing.T, p *Process) Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.Dump(ctx)
	select {
	case <-p.Done():
	default:
		t.Fatal("Dump returned before the process had ended")
	}
	p.Kill("it did not answer")
	return p.Report()
}

// Hazard 3: the stack of a spinning plugin has the spinning function. A Go program prints
// that stack only if it stops the thread in time, which may fail on a busy machine. One
// success of ten suffices.
func TestHazard03DumpShowsWhatSpins(t *testing.T) {
	const attempts = 10
	for i := range attempts {
		cmd, _ := command(t, "spin")
		r := dumped(t, start(t, cmd))
		if strings.Contains(r.Stack, "testplugin.spinForEver(") {
			return
		}
		if i == attempts-1 {
			t.Errorf("none of %d stacks has it, the last is:\n%s", attempts, r.Stack)
		}
	}
}

// Hazard 3: of ten thousand goroutines the first are kept, with the one that
// took the signal, and the process comes to the end of its dump.
func TestHazard03DumpOfTenThousand(t *testing.T) {
	cmd, _ := command(t, "crowd:10000")
	r := dumped(t, start(t, cmd))
	if !strings.HasPrefix(r.Stack, "SIGQUIT: quit\n") || len(r.Stack) < maxKeptStack-4 || len(r.Stack) > maxKeptStack { // 3 bytes of a character may be cut
		t.Errorf("a stack of %d bytes, want %d: %.1000s", len(r.Stack), maxKeptStack, r.Stack)
	}
	if r.ExitCode != 2 || len(r.Output) != keptOutput { // as Go ends when it has printed all
		t.Errorf("exit %q, %d bytes of output kept", r.Exit, len(r.Output))
	}
}

func TestHazard03DumpOfTheDeaf(t *testing.T) {
	cmd, _ := command(t, "quitdeaf")
	p := start(t, cmd)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	p.Dump(ctx)
	select {
	case <-p.Done():
		t.Errorf("it has ended: %s", p.Exit())
	default:
	}
	p.Kill("it did not answer")
	<-p.Done()
	if r := p.Report(); r.Killed != "it did not answer" || r.Signal != "SIGKILL" {
		t.Errorf("killed %q by %q", r.Killed, r.Signal)
	}
	p.Dump(t.Context()) // of one that has ended: nothing
}

// Hazard 20: the folder of the socket, for all kinds of temporary folders.
func TestHazard20TemporaryFolders(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 200))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, dir string }{
		{"long path", long},
		{"read-only", "/proc"}, // for root too
		{"missing", "/nowhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, _ := command(t, "record")
			t.Setenv("TMPDIR", test.dir)
			p := start(t, cmd)
			if folder := p.run.folder.Path; strings.HasPrefix(folder, test.dir) {
				t.Errorf("folder %s, want one elsewhere", folder)
			}
		})
	}
}

// Hazard 20: the folder is cleaned away under a plugin that is connected.
func TestHazard20SocketIsDeletedWhileItIsUsed(t *testing.T) {
	cmd, _ := command(t, "record")
	p := start(t, cmd)
	if err := os.RemoveAll(p.run.folder.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := healthpb.NewHealthClient(p.Conn()).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "plugin"}); err != nil {
		t.Errorf("Check: %v", err)
	}
	stop(t, p, time.Minute)
	if got := p.Exit(); got != "exit status 0" {
		t.Errorf("Exit = %q, want exit status 0", got)
	}
}

// A process that has become another user's is not talked to.
func TestPluginThatServesAsAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	base := testplugin.SocketFolder(t)
	if err := os.Chmod(base, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	cmd, _ := command(t, "stranger")
	cmd.Environ = append(cmd.Environ, "TMPDIR="+base)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := Start(ctx, cmd)
	var e *Error
	want := "start PATH: the host does not use it: peer runs as user 65534, this process as 0: refused; a plugin must run as the user of this process, with a Unix socket"
	if got := normal(fmt.Sprint(err), cmd.Path); got != want || !errors.As(err, &e) || e.Reason != ReasonPeer || !e.Untrusted() {
		t.Errorf("Start = %s\nwant %s", got, want)
	}
}
