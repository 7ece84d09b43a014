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

// sweepPatience is the time in which plugins of dead hosts may end by themselves, because
// they may still deliver spans. Then Sweep kills them. sweepGrace is the time that Sweep waits
// for the end of killed processes.
const (
	sweepPatience = 2 * time.Second
	sweepGrace    = time.Second
)

// sweepAge is the age from which a folder without a lock is removed.
const sweepAge = 24 * time.Hour

// Sweep removes the private folders of plugins whose hosts were killed. It looks into the
// folders that Start uses with the same dirs. On systems that show the environment of a
// process, such as Linux, it also kills the processes that have such a folder in their
// environment. They first have two seconds to end by themselves.
//
// A locked file in the folder shows that the host lives: the kernel unlocks it at the end
// of the host, and the lock is visible from other containers. Sweep does not touch folders
// of other users, folders of running hosts including this host, and files with other
// names.
//
// If the locked file was deleted, it is unknown whether the host lives, so no process is
// killed. Such a folder is removed if no visible process has the id in its name or the
// folder in its environment, and no file in it was added or removed for a day.
//
// Sweep blocks for at most three seconds, and only if there is something to remove. When
// ctx ends, it leaves the rest to the next host. It logs its actions and failures. It is
// safe for concurrent use, also by several hosts.
func Sweep(ctx context.Context, dirs []string, log *slog.Logger) {
	var (
		dead  []*Folder
		paths []string
	)
	for _, base := range socketBases(dirs) {
		entries, err := os.ReadDir(base)
		if err != nil {
			continue // this host could not have made a folder there
		}
		for _, entry := range entries {
			if !wire.IsSocketFolder(entry.Name()) {
				continue
			}
			path := filepath.Join(base, entry.Name())
			if !isFolderOfOurs(path) {
				continue
			}
			// An empty folder has no lock yet, or its files were deleted. It is removed, and
			// no process is killed. A host that is about to lock the folder makes another
			// folder.
			if unix.Rmdir(path) == nil {
				continue
			}
			switch lock, err := openLocked(path, 0); { // fails if the host is alive
			case err == nil:
				dead, paths = append(dead, &Folder{Path: path, lock: lock}), append(paths, path)
			case errors.Is(err, fs.ErrNotExist) && isForgotten(path):
				err := os.RemoveAll(path)
				log.Info("removed an old folder of a plugin without a host", "path", path, "error", err)
			}
		}
	}
	if len(dead) == 0 {
		return
	}
	killed, err := sweepProcesses(ctx, markOf(paths...))
	if ctx.Err() != nil {
		for _, f := range dead {
			_ = f.lock.Close() // so that the next host can lock the folder
		}
		return
	}
	for _, f := range dead {
		f.Remove()
	}
	log.Info("removed folders and processes of plugins of killed hosts", "folders", len(dead), "processes", killed, "error", err)
}

// sweepProcesses waits for the end of the processes with a mark, kills the remaining
// processes, and returns the number of killed processes.
func sweepProcesses(ctx context.Context, mark proctree.Mark) (int, error) {
	patience, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	if err := proctree.Await(patience, mark); ctx.Err() != nil {
		return 0, err
	} // the processes that have not ended are killed below
	grace, cancel := context.WithTimeout(ctx, sweepGrace)
	defer cancel()
	return proctree.Kill(grace, mark)
}

// isFolderOfOurs reports whether path is a folder with the owner and the mode that NewFolder
// sets. A link to such a folder does not count.
func isFolderOfOurs(path string) bool {
	var stat unix.Stat_t
	return unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR &&
		int(stat.Uid) == os.Geteuid() && stat.Mode&0o777 == 0o700
}

// isForgotten reports whether a private folder without a lock file may be removed: it is old,
// and no visible process uses it. A host in another container may still use it, but does no
// longer need its files, because it is connected to the plugin.
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
