package launch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/proctree"
	"github.com/servetrace/servetrace/internal/wire"
)

// How long Sweep gives the plugins of dead hosts to end by themselves, as those
// of the SDK do, who may be delivering; and then to be killed.
const (
	sweepPatience = 2 * time.Second
	sweepGrace    = time.Second
)

// sweepAge is for how long a folder without a lock must have been as it is.
const sweepAge = 24 * time.Hour

// Sweep removes what hosts that were killed have left: the private folders of
// their plugins, in the places where Start makes them given the same dirs, and
// the processes that still carry such a folder in their environment, where
// environments can be read, as on Linux. Plugins first have two seconds to end
// by themselves.
//
// That a host is dead is proved by a lock on a file in the folder, which the
// kernel releases at its end, and which is seen from any container that has the
// folder. Folders of other users, and those of living hosts, this one included,
// are left alone, as is everything whose name is not exactly such a folder's.
//
// Somebody may have removed the lock from a folder, and no more. Such a folder
// proves nothing, so nobody is killed for it: it is removed when no process that
// can be seen has the number in its name, or carries it in its environment, and
// nothing was put into it or taken out for a day.
//
// It blocks for three seconds at most where there is something to remove, and
// stops when ctx ends: what is left is for the next. What it did, and what it
// could not do, goes to log. Safe for concurrent use, also by several hosts.
func Sweep(ctx context.Context, dirs []string, log *slog.Logger) {
	var (
		dead  []*Folder
		paths []string
	)
	for _, base := range socketBases(dirs) {
		entries, err := os.ReadDir(base)
		if err != nil {
			continue // nobody has made a folder there either
		}
		for _, entry := range entries {
			if !wire.IsSocketFolder(entry.Name()) {
				continue
			}
			path := filepath.Join(base, entry.Name())
			if !isFolderOfOurs(path) {
				continue
			}
			// An empty one had no process yet, or somebody has emptied that of a
			// process that lives: to be removed, and nobody to be killed. A host
			// that is about to lock it makes another.
			if unix.Rmdir(path) == nil {
				continue
			}
			switch f, err := claim(path); {
			case err == nil:
				dead, paths = append(dead, f), append(paths, path)
			case errors.Is(err, fs.ErrNotExist) && isForgotten(path):
				err := os.RemoveAll(path)
				log.Info("removed an old folder of a plugin, of which nobody knows any more", "path", path, "error", err)
			}
		}
	}
	if len(dead) == 0 {
		return
	}
	killed, err := sweepProcesses(ctx, markOf(paths...))
	if ctx.Err() != nil {
		for _, f := range dead {
			_ = f.lock.Close() // for the next host
		}
		return
	}
	for _, f := range dead {
		f.Remove()
	}
	log.Info("removed what hosts that were killed had left of their plugins", "folders", len(dead), "processes", killed, "error", err)
}

// sweepProcesses ends the processes with a mark and tells how many it had to
// kill.
func sweepProcesses(ctx context.Context, mark proctree.Mark) (int, error) {
	patience, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	if err := proctree.Await(patience, mark); ctx.Err() != nil {
		return 0, err
	} // those that have not ended are killed
	grace, cancel := context.WithTimeout(ctx, sweepGrace)
	defer cancel()
	return proctree.Kill(grace, mark)
}

// isFolderOfOurs tells whether path is a folder as newFolder makes them, of this
// user's, and no link to one.
func isFolderOfOurs(path string) bool {
	var stat unix.Stat_t
	return unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR &&
		int(stat.Uid) == os.Geteuid() && stat.Mode&0o777 == 0o700
}

// claim takes over a folder if its host is dead. fs.ErrNotExist: it has no lock.
func claim(path string) (*Folder, error) {
	f, err := os.OpenFile(filepath.Join(path, wire.SocketFolderLock), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		_ = f.Close() // empty
		return nil, err
	}
	return &Folder{Path: path, lock: f}, nil
}

// isForgotten tells whether a folder without a lock is nobody's. A host in
// another container, whose processes are not seen from here, may have it yet: it
// has lost its lock then, and the socket's file, which it does not need once it
// is connected.
func isForgotten(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || time.Since(info.ModTime()) < sweepAge {
		return false
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), wire.SocketFolderPrefix), "-")
	pid, err := strconv.Atoi(number)
	if err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return false
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return proctree.Await(now, markOf(path)) == nil
}
