package launch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/test/testplugin"
)

// pinned is a command with a pin on its file, and a folder for sockets of its
// own.
func pinned(t *testing.T, mode string) (Command, string) {
	t.Helper()
	cmd, _ := command(t, mode)
	cmd.Digest = digestOf(t, cmd.Path)
	base := testplugin.SocketFolder(t)
	cmd.SocketDirs = []string{base}
	return cmd, base
}

// runs returns the digest and the path of the executable of a process.
func runs(t *testing.T, pid int) (digest []byte, where string) {
	t.Helper()
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	where, err := os.Readlink(exe)
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	return digestOf(t, exe), where
}

func TestPinRunsFromMemory(t *testing.T) {
	cmd, base := pinned(t, "record")
	before := openFiles(t)
	p := start(t, cmd)
	digest, where := runs(t, p.PID())
	if !bytes.Equal(digest, cmd.Digest) || where != "/memfd:testplugin-record (deleted)" {
		t.Errorf("runs %x from %q, want %x from memory", digest, where, cmd.Digest)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID()))
	if got := strings.TrimSpace(string(comm)); err != nil || got != "testplugin-reco" { // 15 bytes of it
		t.Errorf("the kernel calls it %q, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(base, "*", "testplugin-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	memory, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range memory {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "/memfd:") {
			t.Errorf("this process still holds %s", target)
		}
	}
	stop(t, p, time.Minute)
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("left in the folder for sockets: %v, %v", left, err)
	}
	testplugin.WaitFor(t, "descriptors to be closed", func() bool { return openFiles(t) <= before })
}

// Hazard 12: another file replaces the plugin while plugins are started. Both files are
// good plugins; only one has the pinned digest.
func TestHazard12PinHoldsWhileTheFileIsSwapped(t *testing.T) {
	cmd, base := pinned(t, "record")
	exe, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	// On the disk that the swapped file is on, for rename to be at once.
	dir := filepath.Dir(cmd.Path)
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	if err := errors.Join(os.WriteFile(good, exe, 0o700), os.WriteFile(bad, append(exe, 0), 0o700)); err != nil {
		t.Fatal(err)
	}
	stopSwapping := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		next := filepath.Join(dir, "next")
		for i := 0; ; i++ {
			select {
			case <-stopSwapping:
				return
			default:
			}
			from := good
			if i%2 == 1 {
				from = bad
			}
			if err := errors.Join(os.Link(from, next), os.Rename(next, cmd.Path)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer swapping.Wait()
	defer close(stopSwapping)
	const each = 3
	for ran, refused := 0, 0; (ran < each || refused < each) && !t.Failed(); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		p, err := Start(ctx, cmd)
		cancel()
		var e *Error
		switch {
		case err == nil:
			ran++
			if digest, where := runs(t, p.PID()); !bytes.Equal(digest, cmd.Digest) {
				t.Errorf("runs %x from %s, want %x", digest, where, cmd.Digest)
			}
			stop(t, p, time.Minute)
		case errors.As(err, &e) && e.Reason == ReasonUntrusted:
			refused++
		default:
			t.Errorf("Start: %v", err)
		}
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("left in the folder for sockets: %v, %v", left, err)
	}
}

func TestPinOfOtherBytes(t *testing.T) {
	cmd, base := pinned(t, "record")
	has := cmd.Digest
	cmd.Digest = bytes.Repeat([]byte{0xab}, sha256.Size)
	_, err := Start(t.Context(), cmd)
	want := fmt.Sprintf("start PATH: its bytes are not the pinned ones: the file has sha256:%x, the pin is sha256:%x; "+
		"put the right file there, or the file's digest into the list", has, cmd.Digest)
	if got := normal(fmt.Sprint(err), cmd.Path); got != want {
		t.Errorf("Start = %s\nwant %s", got, want)
	}
	if checked := Check(cmd.Path, Trust{Digest: cmd.Digest}); fmt.Sprint(checked) != fmt.Sprint(err) {
		t.Errorf("Check = %v, want what Start said", checked)
	}
	if err := Check(cmd.Path, Trust{Digest: has}); err != nil {
		t.Errorf("Check with the right pin: %v", err)
	}
	var e *Error
	if !errors.As(err, &e) || !e.Untrusted() || e.Incompatible() {
		t.Errorf("%v is not untrusted", err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("left in the folder for sockets: %v, %v", left, err)
	}
}

// An interpreter opens its script again, by a path.
func TestPinOfAScriptRunsFromAFile(t *testing.T) {
	cmd, base := pinned(t, "record")
	cmd.Path = filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(cmd.Path, []byte("#!/bin/sh\necho \"I am $0\"; ls -l \"$0\"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	cmd.Digest = digestOf(t, cmd.Path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log := &testplugin.Log{}
	cmd.Log = textLog(log)
	_, err := Start(ctx, cmd)
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonNotPlugin {
		t.Fatalf("Start = %v, want it to have run", err)
	}
	if !strings.Contains(log.String(), "I am "+base+"/servetrace-") || !strings.Contains(log.String(), "-r-x------") {
		t.Errorf("it ran from elsewhere, or others may change it:\n%s", log)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
		t.Errorf("left in the folder for sockets: %v, %v", left, err)
	}
}

// The kernel may refuse memory that can be executed (vm.memfd_noexec=2), or not execute
// it (vm.memfd_noexec=1 on an older host, a rule of the system).
func TestPinRunsFromAFileWhereMemoryDoesNot(t *testing.T) {
	for _, test := range []struct {
		name   string
		memory func(string) (*os.File, error)
	}{
		{"no memory", func(string) (*os.File, error) { return nil, os.NewSyscallError("memfd_create", unix.EACCES) }},
		{"memory that is not run", func(name string) (*os.File, error) {
			fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
			return os.NewFile(uintptr(fd), name), err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if f, err := test.memory("probe"); f != nil {
				_ = f.Close()
			} else if errors.Is(err, unix.EINVAL) {
				t.Skip("this kernel has no such memory")
			}
			cmd, base := pinned(t, "record")
			run := newRunner(cmd)
			run.program.newMemory = test.memory
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p, err := await(ctx, run)
			if err != nil {
				t.Fatal(err)
			}
			digest, where := runs(t, p.PID())
			if !bytes.Equal(digest, cmd.Digest) || !strings.HasPrefix(where, base+"/servetrace-") {
				t.Errorf("runs %x from %q, want %x from a file in %s", digest, where, cmd.Digest, base)
			}
			if info, err := os.Stat(where); err != nil || info.Mode() != 0o500 {
				t.Errorf("the copy is %v, %v; want mode 0500", info, err)
			}
			stop(t, p, time.Minute)
			if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
				t.Errorf("left in the folder for sockets: %v, %v", left, err)
			}
		})
	}
}

// No process, not even of this user, can change the copy.
func TestMemoryIsSealed(t *testing.T) {
	memory, err := newMemory("test")
	if err != nil {
		t.Skipf("no memory that can be run: %v", err)
	}
	defer memory.Close()
	if _, err := memory.WriteString("program"); err != nil {
		t.Fatal(err)
	}
	if err := seal(memory); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.WriteAt([]byte("P"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write = %v, want it refused", err)
	}
	if err := memory.Truncate(1); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate = %v, want it refused", err)
	}
	if memory.Fd() < firstMemoryFD {
		t.Errorf("descriptor %d is one that a child may be given another in place of", memory.Fd())
	}
}

// BenchmarkPin measures the additional cost of a start with a pin.
func BenchmarkPin(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	data, err := os.ReadFile(exe)
	if err != nil {
		b.Fatal(err)
	}
	digest := sha256.Sum256(data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		p := newRunner(Command{Path: exe, Trust: Trust{Digest: digest[:]}, Log: textLog(io.Discard)})
		if p.folder, err = NewFolder(nil); err != nil {
			b.Fatal(err)
		}
		if err := p.program.prepare(p.folder); err != nil {
			b.Fatal(err)
		}
		p.program.release()
		p.folder.Remove()
	}
}
