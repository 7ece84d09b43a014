package pluginsdk

import (
	"os"

	"golang.org/x/sys/unix"
)

// dup2 makes descriptor to a copy of descriptor from. It calls dup3, because Linux on
// arm64 has no dup2.
func dup2(from, to int) error { return unix.Dup3(from, to, 0) }

// processEnd returns a function that blocks until the process has ended. The function
// waits in Go's network poller, on a descriptor of the process. If the kernel gives no
// such descriptor, the function returns at once. This happens with a kernel before 5.3,
// in a sandbox that forbids the call, and for a process of another PID namespace (its id
// is 0).
func processEnd(pid int) (await func()) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return func() {}
	}
	process := os.NewFile(uintptr(fd), "parent")
	return func() {
		defer func() { _ = process.Close() }()
		conn, err := process.SyscallConn()
		if err != nil {
			return
		}
		_ = conn.Read(func(fd uintptr) (ended bool) {
			look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor always fits into int32
			n, err := unix.Poll(look, 0)
			for err == unix.EINTR {
				n, err = unix.Poll(look, 0)
			}
			return n > 0 || err != nil
		})
	}
}
