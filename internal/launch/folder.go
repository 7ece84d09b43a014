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
		lock, err := openLocked(path, os.O_CREATE|os.O_EXCL)
		if err == nil {
			return &Folder{Path: path, lock: lock}, nil
		}
		_ = os.RemoveAll(path)
		if !errors.Is(err, errTaken) && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// errTaken is the error of openLocked if another process, such as Sweep in another host, has
// locked or removed the file first.
var errTaken = errors.New("taken for a folder of a dead host")

// openLocked opens the lock file of a private folder, and locks it until it is closed or this
// process ends.
func openLocked(folder string, flags int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, wire.SocketFolderLock), os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	var stat unix.Stat_t
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = errTaken
	case err != nil:
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	case unix.Fstat(int(f.Fd()), &stat) != nil || stat.Nlink == 0:
		err = errTaken
	default:
		return f, nil
	}
	_ = f.Close() // an error has no effect: the file is empty
	return nil, err
}

// Remove removes the folder with its content. It may be called again.
func (f *Folder) Remove() {
	_ = os.RemoveAll(f.Path) // the Sweep of a later host removes the rest
	_ = f.lock.Close()       // last, because a locked folder counts as in use
}
