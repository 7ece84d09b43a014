package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/wire"
)

// Folder is the private folder of one plugin process. It holds the socket, the copy of a
// pinned executable, and a file that is locked while this host uses the folder. Because of
// the lock, Sweep in another host does not remove the folder.
type Folder struct {
	// Path is the absolute path. It is short enough for a socket in a folder inside it.
	Path string
	lock *os.File
}

// NewFolder makes a private folder in the first folder of dirs in which that is possible,
// otherwise in the temporary folder, /tmp or /dev/shm. The caller must call Remove.
func NewFolder(dirs []string) (*Folder, error) {
	var errs []error
	for _, base := range socketBases(dirs) {
		f, err := newFolderIn(base)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no folder for a socket (set TMPDIR to a writable folder of at most %d characters): %w",
		maxSocketBase, errors.Join(errs...))
}

// socketBases returns the folders in which NewFolder tries to make a private folder, each
// folder once.
func socketBases(dirs []string) []string {
	var bases []string
	for _, base := range append(slices.Clone(dirs), os.TempDir(), "/tmp", "/dev/shm") {
		if base == "" {
			continue
		}
		base, err := filepath.Abs(base)
		if err == nil && len(base) <= maxSocketBase && !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	return bases
}

// maxSocketBase is the length of the longest path of a folder that NewFolder uses. A socket's
// path has at most 104 bytes, and "/servetrace-PID-RANDOM/plugin-dirRANDOM/pluginRANDOM"
// follows the path of the folder.
const maxSocketBase = 34

// newFolderIn makes a private folder in base and locks it. Before the lock, Sweep in another
// host may remove the folder as abandoned. Then newFolderIn makes another folder.
func newFolderIn(base string) (*Folder, error) {
	for {
		path, err := os.MkdirTemp(base, fmt.Sprintf("%s%d-", wire.SocketFolderPrefix, os.Getpid()))
		if err != nil {
			return nil, err
		}
		lock, err := lockNew(filepath.Join(path, wire.SocketFolderLock))
		if err == nil {
			return &Folder{Path: path, lock: lock}, nil
		}
		_ = os.RemoveAll(path)
		if !errors.Is(err, errTaken) {
			return nil, err
		}
	}
}

// errTaken is the error of lock if another process, such as Sweep in another host, has
// locked or removed the file first.
var errTaken = errors.New("taken for a folder of a dead host")

// lockNew creates a file and locks it.
func lockNew(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return nil, errTaken
	case err != nil:
		return nil, err
	}
	if err := lock(f); err != nil {
		_ = f.Close() // an error has no effect: the file is empty
		return nil, err
	}
	return f, nil
}

// lock locks a file until it is closed or this process ends. It returns errTaken if
// another process has locked or removed the file.
func lock(f *os.File) error {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return errTaken
		case err != nil:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &stat); err != nil || stat.Nlink == 0 {
			return errTaken
		}
		return nil
	}
}

// Remove removes the folder with its content. It may be called again.
func (f *Folder) Remove() {
	_ = os.RemoveAll(f.Path) // the Sweep of a later host removes the rest
	_ = f.lock.Close()       // last, because a locked folder counts as in use
}
