package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/localsocket"
)

// RunningError reports that another relay listens at a socket.
type RunningError struct {
	// Socket is the path of the socket. PID is the process id of the relay, or 0 if it is
	// unknown.
	Socket string
	PID    int
}

// Error names the socket and the process.
func (e *RunningError) Error() string {
	return fmt.Sprintf("a relay listens at %s already (pid %d)", e.Socket, e.PID)
}

// lockSuffix is the end of the name of a file beside the socket. The relay of the socket
// locks this file.
const lockSuffix = ".lock"

// lockedSocket is the listener of a Unix socket, with the lock of the relay.
type lockedSocket struct {
	*net.UnixListener
	lock *os.File
}

// Close removes the socket and then releases the lock, so that another relay can listen. It
// unlocks the file first, because a process that is just being started may have inherited
// the open file.
func (l lockedSocket) Close() error {
	return errors.Join(l.UnixListener.Close(), unix.Flock(int(l.lock.Fd()), unix.LOCK_UN), l.lock.Close())
}

// listenUnix opens the socket at path, and creates a missing folder of the socket with
// mode 0700. It returns a RunningError if another relay has the lock.
func listenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("folder of the socket: %w", err)
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	l, err := localsocket.Listen(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %s: %w", path, err), lock.Close())
	}
	return lockedSocket{l, lock}, nil
}

// lockSocket locks the file beside the socket, and writes the process id into it. The
// kernel releases the lock when the process ends.
func lockSocket(path string) (*os.File, error) {
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of the socket: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		running := &RunningError{Socket: path}
		_, _ = fmt.Fscan(f, &running.PID) // the other relay may not have written its process id yet
		_ = f.Close()
		return nil, running
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// listenTimeout bounds the lookup of a host name.
const listenTimeout = 2 * time.Second

// listenTCP opens a TCP listener. variable is the setting with its address.
func listenTCP(ctx context.Context, addr, variable string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: another process listens there; set another address with %s", err, flagOf(variable))
	case err != nil:
		return nil, fmt.Errorf("%w; check %s", err, flagOf(variable))
	}
	return l, nil
}

// flagOf returns a variable together with its flag of "servetrace relay".
func flagOf(variable string) string {
	return "--" + strings.ToLower(strings.TrimPrefix(variable, "SERVE_RELAY_")) + " or " + variable
}
