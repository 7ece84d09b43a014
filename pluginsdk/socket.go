package pluginsdk

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/servetrace/servetrace/internal/localsocket"
)

// socket is the Unix socket on which a plugin serves its hosts.
type socket struct {
	listener *net.UnixListener
	path     string
	// folder is the folder that listen has made for the socket, and that remove deletes. It
	// is empty if the folder belongs to the host or the operator.
	folder string
}

// listen opens a socket in the folder dir. If dir is empty, it makes a private folder for
// the socket.
func listen(dir string) (*socket, error) {
	s := &socket{}
	if dir == "" {
		folder, err := os.MkdirTemp("", "servetrace-plugin-") // MkdirTemp sets mode 0700
		if err != nil {
			return nil, fmt.Errorf("make a folder for the socket: %w", err)
		}
		s.folder, dir = folder, folder
	}
	if err := s.open(dir); err != nil {
		s.remove()
		return nil, fmt.Errorf("open a socket in %q: %w", dir, err)
	}
	return s, nil
}

// open listens on a new socket with a unique name in dir, which only this user can use.
func (s *socket) open(dir string) error {
	file, err := os.CreateTemp(dir, "plugin")
	if err != nil {
		return err
	}
	s.path = filepath.Clean(file.Name())
	if err := errors.Join(file.Close(), os.Remove(s.path)); err != nil {
		return err
	}
	if len(s.path) > localsocket.MaxPath {
		return fmt.Errorf("path %q has %d bytes, the system takes %d: use a shorter folder", s.path, len(s.path), localsocket.MaxPath)
	}
	s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return err
	}
	return os.Chmod(s.path, 0o600)
}

// remove closes the socket and deletes its file. It also deletes the folder if listen has
// made it.
func (s *socket) remove() {
	if s.listener != nil {
		_ = s.listener.Close() // the error is ignored, because the server may have closed it already
	}
	if s.folder != "" {
		_ = os.RemoveAll(s.folder)
	}
}
