// Package localsocket opens Unix sockets at paths that an operator has chosen.
//
// Listen replaces a socket that a dead process has left, and restricts the new socket to
// the user of this process. It does not check the user of a peer: wire.CheckPeer does.
package localsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxPath is the length of the longest path of a socket, in bytes. It is the limit of macOS, which
// allows 104 bytes with the final zero. Linux allows 108.
const MaxPath = 103

// Listen opens a socket at path, with mode 0600. It replaces a socket that a dead process
// left. It returns an error if a process listens at path, or if path is another kind of
// file. During the call it locks the folder, so that two processes do not remove each other's
// socket. Closing the listener removes the socket.
func Listen(path string) (*net.UnixListener, error) {
	if len(path) > MaxPath {
		return nil, fmt.Errorf("the path has %d bytes, the system takes %d: use a shorter one", len(path), MaxPath)
	}
	unlock, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// Until this call, other users may be able to connect. Only a check of the peer's user, such as
	// wire.CheckPeer, refuses them.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close() // an error has no effect: no bytes were exchanged
		return nil, err
	}
	return l, nil
}

// removeStale removes the socket at path if no process listens there. Any other file at
// path is an error.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is not a socket: remove it, or choose another path")
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return errors.New("another process listens there: end it, or choose another path")
	}
	if errors.Is(err, fs.ErrNotExist) { // the process has just ended and removed its socket
		return nil
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("check whether a process listens there: %w", err)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lockPatience bounds the wait for the lock of a folder, which another process holds while it opens
// a socket. lockPoll is the pause between two attempts.
const (
	lockPatience = 5 * time.Second
	lockPoll     = 10 * time.Millisecond
)

// lockFolder locks a folder against other calls of lockFolder, also in other processes. If the file
// system does not support locks, it locks nothing and returns no error.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(lockPoll) {
		err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return func() { _ = folder.Close() }, nil // closing the folder unlocks it
		}
		if time.Now().After(deadline) {
			_ = folder.Close()
			return nil, fmt.Errorf("another process has locked folder %q: choose another path", path)
		}
	}
}
