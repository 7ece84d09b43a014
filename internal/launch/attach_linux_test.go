package launch

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// asNobody runs f on a thread of its own that the kernel takes for another
// user's.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	var running sync.WaitGroup
	running.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		const keep = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, nobody, keep); errno != 0 {
			t.Errorf("become user %d: %v", nobody, errno)
			return
		}
		f()
	})
	running.Wait()
}

const nobody = 65534

func TestAttachToAnotherUsersSocket(t *testing.T) {
	path := socketPath(t)
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() { listen(t, path) })
	_, err := Attach(t.Context(), path)
	wantError(t, err, ReasonPeer, "attach to "+path+": peer runs as user "+strconv.Itoa(nobody)+", this process as 0: refused; run the plugin as the user of this process")
}

func TestAttachWithoutPermission(t *testing.T) {
	path, _ := serveGRPC(t)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	attach := func() (err error) {
		asNobody(t, func() { _, err = Attach(t.Context(), path) })
		return err
	}
	text := "attach to " + path + ": this process (user 65534) may not "
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	wantError(t, attach(), ReasonPermission, text+"connect to the socket; run the plugin as the same user")
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	wantError(t, attach(), ReasonPermission, text+"look into the socket's folder; run the plugin as the same user")
}

func TestAttachWhereTheQueueIsFull(t *testing.T) {
	path := fullSocket(t)
	_, err := Attach(t.Context(), path)
	wantError(t, err, ReasonNoListener, "attach to "+path+": its queue of connections is full: the plugin is frozen, or accepts none")
}

// fullSocket has a queue of one connection, which is taken.
func fullSocket(t *testing.T) string {
	t.Helper()
	path := socketPath(t)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 10 { // the kernel rounds up
		conn, err := net.Dial("unix", path)
		if err != nil {
			return path
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue is never full")
	return ""
}
