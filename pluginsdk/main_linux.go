package pluginsdk

import (
	"os"

	"golang.org/x/sys/unix"
)

// dup2 is dup3: arm64 has no other.
func dup2(from, to int) error { return unix.Dup3(from, to, 0) }

// processEnd gives a function that returns when the process has ended. Nothing
// runs until then: the runtime's poller waits for a descriptor of the process.
// It returns at once where there is no such descriptor: a kernel before 5.3, a
// sandbox that forbids it, a parent in another PID namespace (its id is 0).
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
			look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // no descriptor is that large
			n, err := unix.Poll(look, 0)
			for err == unix.EINTR {
				n, err = unix.Poll(look, 0)
			}
			return n > 0 || err != nil
		})
	}
}
