package host_test

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// swappable is an executable that becomes the plugin at a given path. The plugin can be
// swapped under the executable's name.
type swappable struct {
	t    *testing.T
	path string
}

func newSwappable(t *testing.T, target string) swappable {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash, whose exec names a program")
	}
	s := swappable{t, filepath.Join(t.TempDir(), "plugin")}
	s.become(target)
	return s
}

// become swaps the executable as an installation does: by a rename.
func (s swappable) become(target string) {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	script := fmt.Sprintf("#!/usr/bin/env bash\nexec -a %q %q\n", target, exe)
	if err := os.WriteFile(s.path+".new", []byte(script), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		s.t.Fatal(err)
	}
}

// load ends batches of spans until stop, which returns the number of spans.
func (r *running) load() (stop func() int) {
	ctx, cancel := context.WithCancel(r.t.Context())
	n := 0
	var loading sync.WaitGroup
	loading.Go(func() {
		pause := time.NewTicker(2 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			r.spans(fmt.Sprintf("s-%d", n), 10)
			n++
			<-pause.C
		}
	})
	return func() int { cancel(); loading.Wait(); return 10 * n }
}

func (r *running) reload() error {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	return r.Reload(ctx)
}

// TestUpgradesUnderLoadLoseNothing: a dozen upgrades while spans flow. No process crashes,
// so each span is delivered exactly once.
func TestUpgradesUnderLoadLoseNothing(t *testing.T) {
	path := testplugin.Install(t, "slow:1ms")
	r := startHost(t, nil, path)
	r.waitReady(0)
	stop := r.load()
	testplugin.WaitFor(t, "a batch for the first process", func() bool { return r.Stats().Exporters[0].Delivered > 0 })
	for range 12 {
		if err := r.reload(); err != nil {
			t.Error(err)
		}
		r.balanced()
	}
	n := stop()
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": uint64(n)})
	got, pids := testplugin.Spans(t, path), map[int]bool{}
	for name, times := range got {
		if times != 1 {
			t.Errorf("span %s was delivered %d times", name, times)
		}
	}
	for _, b := range testplugin.Received(t, path) {
		pids[b.PID] = true
	}
	if len(got) != n || len(pids) != 13 {
		t.Errorf("%d different spans of %d on disk, by %d processes; want 13", len(got), n, len(pids))
	}
	if x := r.Stats().Exporters[0]; x.Starts != 13 || x.Crashes != 0 {
		t.Errorf("%d starts, %d crashes", x.Starts, x.Crashes)
	}
}

// TestUpgradeToABadPluginLosesNothing: it fails its handshake, dies of its first
// batch, refuses all for good, or has no configuration.
func TestUpgradeToABadPluginLosesNothing(t *testing.T) {
	good := testplugin.Install(t, "record")
	plugin := newSwappable(t, good)
	r := startHost(t, func(c *host.Config) { c.StartTimeout = time.Minute }, plugin.path)
	r.waitReady(0)
	pid := r.Stats().Exporters[0].PID
	stop := r.load()
	for _, mode := range []string{"exit", "crash:1", "permanent", "refuse", "version:99"} {
		bad := testplugin.Install(t, mode)
		plugin.become(bad)
		if err := r.reload(); err == nil || !strings.Contains(err.Error(), "is not replaced, the old process goes on") {
			t.Errorf("%s: Reload = %v", mode, err)
		}
	}
	n := stop()
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": uint64(n)})
	if got := testplugin.Spans(t, good); len(got) != n {
		t.Errorf("%d different spans of %d came to the old process", len(got), n)
	}
	if x := r.Stats().Exporters[0]; x.PID != pid || x.Starts != 1 {
		t.Errorf("process %d serves after %d starts, want %d, the first", x.PID, x.Starts, pid)
	}
}

// TestHazard13SwappedWhileItRuns: the log reports the new file.
func TestHazard13SwappedWhileItRuns(t *testing.T) {
	first, second := testplugin.Install(t, "record"), testplugin.Install(t, "record")
	for how, swap := range map[string]func(*testing.T, swappable){
		"rename over": func(_ *testing.T, s swappable) { s.become(second) },
		"overwrite": func(t *testing.T, s swappable) {
			text, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.path, append(text, "# changed\n"...), 0o700); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel() // most of it is the wait for the next look at the file
			plugin := newSwappable(t, first)
			r := startHost(t, nil, plugin.path)
			r.waitReady(0)
			pid := r.Stats().Exporters[0].PID
			swap(t, plugin)
			r.spans("s", 10)
			r.flush()
			if got := r.Stats().Exporters[0].PID; got != pid {
				t.Errorf("process %d was replaced by %d, though nobody said so", pid, got)
			}
			testplugin.WaitFor(t, "Stats to say so", func() bool { return r.Stats().Exporters[0].Changed })
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			testplugin.WaitFor(t, "the restart that tells", func() bool {
				return strings.Contains(r.log.String(), "the executable has changed since the plugin was started last")
			})
		})
	}
}

func TestHazard13WatchTakesUpWhatWasSwapped(t *testing.T) {
	first, second := testplugin.Install(t, "record"), testplugin.Install(t, "record")
	plugin := newSwappable(t, first)
	r := startHost(t, func(c *host.Config) { c.Watch = 50 * time.Millisecond }, plugin.path)
	r.waitReady(0)
	stop := r.load()
	plugin.become(second)
	testplugin.WaitFor(t, "spans at the second", func() bool { return len(testplugin.Received(t, second)) > 5 })
	n := stop()
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": uint64(n)})
	if got := len(testplugin.Spans(t, first)) + len(testplugin.Spans(t, second)); got != n {
		t.Errorf("%d different spans of %d", got, n)
	}
}

// TestHazard18MismatchIsNotRetried, until another file is there.
func TestHazard18MismatchIsNotRetried(t *testing.T) {
	t.Parallel() // as above
	plugin := newSwappable(t, testplugin.Install(t, "version:99"))
	r := startHost(t, func(c *host.Config) { c.StartTimeout = time.Minute }, plugin.path)
	testplugin.WaitFor(t, "the state", func() bool { return r.Stats().Exporters[0].State == host.StateIncompatible })
	plugin.become(testplugin.Install(t, "record"))
	r.waitReady(0)
	if got := strings.Count(r.log.String(), "is incompatible"); got != 1 {
		t.Errorf("told %d times", got)
	}
}

// TestHazard19NoProgramForThisMachine: each error has its cause. A plugin is tried again
// only if that may help.
func TestHazard19NoProgramForThisMachine(t *testing.T) {
	machine := elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_X86_64
	}
	var foreign strings.Builder
	if err := binary.Write(&foreign, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mode  fs.FileMode
		text  string
		state host.State
		want  string
	}{
		"other machine":  {0o700, foreign.String(), host.StateIncompatible, "it is built for"},
		"not executable": {0o600, "#!/bin/sh\n", host.StateBackingOff, "run: chmod +x"},
		"bad shebang":    {0o700, "#!/no/such/interpreter\n", host.StateBackingOff, "interpreter"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "plugin")
			if err := os.WriteFile(path, []byte(test.text), test.mode); err != nil {
				t.Fatal(err)
			}
			r := startHost(t, nil, path)
			testplugin.WaitFor(t, "the state", func() bool { return r.Stats().Exporters[0].State == test.state })
			if x := r.Stats().Exporters[0]; !strings.Contains(x.LastError, test.want) {
				t.Errorf("last error %q, want %q in it", x.LastError, test.want)
			}
		})
	}
}

// TestHazard20DeletedSocketIsNoMatter: the connection stands.
func TestHazard20DeletedSocketIsNoMatter(t *testing.T) {
	path := testplugin.Install(t, "record")
	dir := testplugin.SocketFolder(t)
	r := startHost(t, func(c *host.Config) { c.Environ = append(c.Environ, "XDG_RUNTIME_DIR="+dir) }, path)
	r.waitReady(0)
	deleted := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSocket {
			deleted++
			return os.Remove(path)
		}
		return err
	})
	if err != nil || deleted != 1 {
		t.Fatalf("%d sockets deleted: %v", deleted, err)
	}
	for range 3 {
		r.spans("s", 100)
		r.flush()
	}
	r.wantCounts(0, map[string]uint64{"delivered": 300})
	if got := r.Stats().Exporters[0].Starts; got != 1 {
		t.Errorf("%d starts", got)
	}
}

// TestHazard03FrozenPluginLeavesItsStack: it is dumped before it is killed.
func TestHazard03FrozenPluginLeavesItsStack(t *testing.T) {
	t.Parallel() // it waits for processes
	r := startHost(t, func(c *host.Config) { c.ExportTimeout = 200 * time.Millisecond }, testplugin.Install(t, "record"))
	r.waitReady(0)
	testplugin.Freeze(t, r.Stats().Exporters[0].PID)
	r.spans("s", 10)
	testplugin.WaitFor(t, "the stack", func() bool { return strings.Contains(r.log.String(), "SIGQUIT: quit") })
	r.flush()
	wantLines(t, r.log.String(), map[string]int{"level=ERROR": 1, "level=ERROR msg=\"plugin has crashed\"": 1})
}

// TestShutdownStartsAPluginInItsPause: the spans that wait are delivered, although the next
// start is due after half a minute, which is more than the time to send the rest.
func TestShutdownStartsAPluginInItsPause(t *testing.T) {
	t.Parallel() // most of it is pauses between starts
	plugin := newSwappable(t, testplugin.Install(t, "exit"))
	r := startHost(t, func(c *host.Config) { c.StartTimeout, c.StopTimeout = time.Minute, 30*time.Second }, plugin.path)
	testplugin.WaitFor(t, "the breaker", func() bool { return r.Stats().Exporters[0].State == host.StateBroken })
	r.spans("s", 100)
	plugin.become(testplugin.Install(t, "record"))
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if x := r.Stats().Exporters[0]; x.Delivered != 100 || x.Starts != 1 {
		t.Errorf("%d spans delivered by %d starts, want 100 by one", x.Delivered, x.Starts)
	}
}

// TestHazard07RealCrashLoop: a plugin that ends at its start is broken within seconds.
// Reload starts the mended file.
func TestHazard07RealCrashLoop(t *testing.T) {
	for _, mode := range []string{"exit", "crash:1"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel() // most of it is pauses between starts
			plugin := newSwappable(t, testplugin.Install(t, mode))
			r := startHost(t, func(c *host.Config) { c.StartTimeout = time.Minute }, plugin.path)
			n := 0
			testplugin.WaitFor(t, "the breaker", func() bool {
				r.spans(fmt.Sprint(n), 1)
				n++
				return r.Stats().Exporters[0].State == host.StateBroken
			})
			if x := r.Stats().Exporters[0]; x.Crashes < crashesToBreak {
				t.Errorf("broken after %d crashes", x.Crashes)
			}
			plugin.become(testplugin.Install(t, "record"))
			if err := r.reload(); err != nil {
				t.Error(err)
			}
			r.waitReady(0)
		})
	}
}
