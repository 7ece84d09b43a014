package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/servetrace/servetrace/test/testplugin"
)

// Variables that make this binary a host: the paths of its plugins, a line
// each, and its folder for sockets.
const (
	envHost    = "LAUNCH_TEST_HOST"
	envSockets = "LAUNCH_TEST_SOCKETS"
)

// becomeHost does not return in a process that is to be a host.
func becomeHost() {
	if paths := os.Getenv(envHost); paths != "" {
		beHost(strings.Split(paths, "\n"))
	}
}

// beHost starts plugins, prints the id of each, and waits to be killed; the
// first process of a container does a little more.
func beHost(paths []string) {
	if os.Getpid() == 1 { // of a container, which sees its own processes alone
		if err := errors.Join(
			syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
			syscall.Mount("proc", "/proc", "proc", 0, ""),
		); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	var started []*Process
	for _, path := range paths {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		p, err := Start(ctx, Command{
			Name: "test", Path: path, Environ: []string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"},
			SocketDirs: []string{os.Getenv(envSockets)}, Log: slog.New(slog.DiscardHandler),
		})
		cancel()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		started = append(started, p)
		fmt.Println(p.PID())
	}
	if os.Getpid() == 1 {
		beInit(started)
	}
	select {}
}

// aHost is another process that has started plugins.
type aHost struct {
	cmd  *exec.Cmd
	pids []int
}

func startHost(t *testing.T, base string, paths ...string) *aHost {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &aHost{cmd: exec.Command(exe)}
	h.cmd.Env = append(os.Environ(), envHost+"="+strings.Join(paths, "\n"), envSockets+"="+base)
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	lines := bufio.NewScanner(out)
	for range paths {
		lines.Scan()
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatalf("the host says %q", lines.Text())
		}
		h.pids = append(h.pids, pid)
	}
	return h
}

// kill kills the host alone, as kill -9 does.
func (h *aHost) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

func gone(t *testing.T, what string, pid int) {
	t.Helper()
	testplugin.WaitFor(t, "the end of "+what, func() bool { return testplugin.Gone(pid) })
}

func isEmptyFolder(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries) == 0
}

// Hazard 24: processes of a plugin that have left its group.
func TestHazard24DaemonsEndWithThePlugin(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*testing.T, *Process)
	}{
		{"stop", func(t *testing.T, p *Process) { stop(t, p, time.Minute) }},
		{"crash", func(t *testing.T, p *Process) {
			if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, log := command(t, "daemon")
			other, _ := command(t, "daemon")
			p := start(t, cmd)
			start(t, other)
			daemon := testplugin.Received(t, cmd.Path)[0].PID
			test.end(t, p)
			gone(t, "the daemon", daemon)
			if want := "were still there after its end and were killed"; !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
			if pid := testplugin.Received(t, other.Path)[0].PID; testplugin.Gone(pid) {
				t.Error("the daemon of another plugin has gone too")
			}
		})
	}
}

// A program that is no plugin has started something nevertheless.
func TestHazard24DaemonsEndWithAFailedStart(t *testing.T) {
	cmd, _ := command(t, "record")
	cmd.Path = filepath.Join(t.TempDir(), "plugin")
	script := "#!/bin/sh\nsetsid sleep 300 &\necho $! >\"$0.pid.new\"; mv \"$0.pid.new\" \"$0.pid\"\nexec sleep 300\n"
	if err := os.WriteFile(cmd.Path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := Start(ctx, cmd); ended <- err }()
	var daemon int
	testplugin.WaitFor(t, "the daemon", func() bool {
		text, err := os.ReadFile(cmd.Path + ".pid")
		if err != nil {
			return false
		}
		daemon, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("Start of no plugin succeeded")
	}
	gone(t, "the daemon", daemon)
}

// Hazards 1 and 24: only the SDK is left to end the processes that the host and its
// plugins have started.
func TestHazard01KillOfTheHostLeavesNothing(t *testing.T) {
	base := testplugin.SocketFolder(t)
	plugin, other := testplugin.Install(t, "daemon"), testplugin.Install(t, "record")
	h := startHost(t, base, plugin, other)
	daemon := testplugin.Received(t, plugin)[0].PID
	h.kill()
	for _, pid := range h.pids {
		gone(t, "a plugin", pid)
	}
	gone(t, "the daemon", daemon)
	testplugin.WaitFor(t, "empty folder for sockets", func() bool { return isEmptyFolder(t, base) })
}

// Hazard 2: the kernel's death signal comes when a thread ends, not when the
// process does. https://golang.org/issue/27505
func TestHazard02PluginsSurviveTheEndOfThreads(t *testing.T) {
	const threads, plugins = 1000, 8
	var ending sync.WaitGroup
	ending.Go(func() {
		for range threads / 20 {
			var batch sync.WaitGroup // so many threads at once are no burden
			for range 20 {
				batch.Go(func() { runtime.LockOSThread() }) // never unlocked: the thread ends
			}
			batch.Wait()
		}
	})
	var running []*Process
	for range plugins {
		cmd, _ := command(t, "record")
		running = append(running, start(t, cmd))
	}
	ending.Wait()
	for _, p := range running {
		if _, err := healthpb.NewHealthClient(p.Conn()).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "plugin"}); err != nil {
			t.Errorf("Check: %v; exit %q", err, p.Exit())
		}
	}
}

// zombies are the children of this process that wait to be collected.
func zombies() (list []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err == nil && strings.Contains(string(text), fmt.Sprintf(") Z %d ", os.Getpid())) {
			list = append(list, strings.TrimSpace(string(text)))
		}
	}
	return list
}

// Hazard 33.
func TestHazard33NoZombiesAreLeft(t *testing.T) {
	for _, mode := range []string{"record", "daemon", "child", "hello", "exit", "version:9"} {
		cmd, _ := command(t, mode)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		p, err := Start(ctx, cmd)
		cancel()
		if err == nil {
			_ = syscall.Kill(p.PID(), syscall.SIGKILL)
			<-p.Done()
			stop(t, p, time.Minute)
		}
	}
	if left := zombies(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Hazard 33, as the first process of a container, to which all orphans fall.
func TestHazard33NoZombiesAreLeftInAContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a container")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugins := testplugin.Install(t, "child") + "\n" + testplugin.Install(t, "daemon")
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envHost+"="+plugins, envSockets+"="+testplugin.SocketFolder(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Skipf("no container here: %v", err)
	}
	if err != nil {
		t.Errorf("the host in the container: %v\n%s", err, out)
	}
}

// beInit kills its plugins and reports whether a process of them is left.
func beInit(plugins []*Process) {
	fail := func(args ...any) {
		fmt.Println(args...)
		os.Exit(1)
	}
	for _, p := range plugins {
		_ = syscall.Kill(p.PID(), syscall.SIGKILL)
		<-p.Done()
		if err := p.Stop(context.Background()); err != nil {
			fail(err)
		}
	}
	if left := zombies(); len(left) > 0 {
		fail("zombies:", left)
	}
	if processes, _ := filepath.Glob("/proc/[0-9]*"); len(processes) != 1 { // the pattern is a good one
		fail("processes:", processes)
	}
	os.Exit(0)
}
