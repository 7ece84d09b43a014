package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// These bound the files of one plugin in Settings.CrashDir. The oldest files beyond the
// bounds are removed.
const (
	mostReports   = 20
	mostKept      = 1000 // number of quarantined batches
	mostKeptBytes = 64 << 20
)

// These bound the files of all plugins that wait to be written. A file beyond the
// bounds is lost and counted.
const (
	mostKeepJobs = 16
	keepShare    = 5.0 / 64 // part of Settings.QueueBytes
)

const staleTemporary = time.Hour // age after which prune removes a temporary file

// These are parts of the file names. The names sort by time.
const (
	reportPrefix = "crash-"
	reportSuffix = ".txt"
	keptPrefix   = "batch-"
	keptSuffix   = ".binpb"
	tempPrefix   = ".new-"
	fileTime     = "20060102T150405.000000Z"
)

// crashFiles writes reports of crashes and quarantined batches to a folder:
// DIR/PLUGIN/crash-TIME-PID.txt and DIR/PLUGIN/batch-TIME-ID.binpb, an OTLP request
// each. No caller waits for the disk, except Shutdown for a moment. Files that cannot be
// written are lost and counted. Safe for concurrent use.
type crashFiles struct {
	dir string // empty: nothing is kept
	log *slog.Logger
	// most bounds the bytes of batches that wait to be written, which are part of
	// Settings.QueueBytes. One batch may always wait.
	most int64

	mu      sync.Mutex
	jobs    []keepJob
	bytes   int64         // bytes of the batches in jobs and of the batch that is being written
	idle    chan struct{} // closed when the writing goroutine ends; nil: it does not run
	failing bool          // the last file could not be written, and this was logged
	lost    map[string]uint64
}

// keepJob is one file to be written. Its bytes count against Settings.QueueBytes until
// release.
type keepJob struct {
	plugin, name string
	data         []byte
	bytes        int64
	release      func() // called after the write; nil for a report, which holds no batch
}

func newCrashFiles(cfg *Settings, log *slog.Logger) *crashFiles {
	return &crashFiles{dir: cfg.CrashDir, log: log, most: int64(float64(cfg.QueueBytes) * keepShare), lost: map[string]uint64{}}
}

// keepReport and keepBatch add a file that work writes in the background, and return
// its path. The path is empty if no files are kept, or if too many files wait. They
// never block. They return an error for the log once; the next error comes after a file
// has been written.
func (k *crashFiles) keepReport(plugin string, now time.Time, pid int, text []byte) (path string, err error) {
	return k.keep(keepJob{plugin: plugin, data: text,
		name: fmt.Sprintf("%s%s-%d%s", reportPrefix, now.UTC().Format(fileTime), pid, reportSuffix)})
}

func (k *crashFiles) keepBatch(plugin string, now time.Time, id string, b keptBatch) (path string, err error) {
	b.Retain()
	path, err = k.keep(keepJob{plugin: plugin, data: b.Bytes(), bytes: b.Size(), release: b.Release,
		name: fmt.Sprintf("%s%s-%s%s", keptPrefix, now.UTC().Format(fileTime), id, keptSuffix)})
	if path == "" {
		b.Release()
	}
	return path, err
}

type keptBatch interface {
	Bytes() []byte
	Size() int64
	Retain()
	Release()
}

func (k *crashFiles) keep(job keepJob) (path string, err error) {
	if k.dir == "" {
		return "", nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.jobs) >= mostKeepJobs || k.bytes > 0 && k.bytes+job.bytes > k.most {
		k.lost[job.plugin]++
		if !k.failing {
			k.failing = true
			err = fmt.Errorf("%d files wait to be written to %s; does the disk hang?", len(k.jobs), k.dir)
		}
		return "", err
	}
	k.bytes += job.bytes
	k.jobs = append(k.jobs, job)
	if k.idle == nil {
		k.idle = make(chan struct{})
		go k.work() // ends with the last job; wait waits for it
	}
	return filepath.Join(k.dir, job.plugin, job.name), nil
}

const notKept = "a crash file cannot be written, and no further ones until the cause is removed; see " + EnvCrashDir

// work writes the waiting files, and returns when there are none.
func (k *crashFiles) work() {
	for {
		k.mu.Lock()
		if len(k.jobs) == 0 {
			close(k.idle)
			k.idle = nil
			k.mu.Unlock()
			return
		}
		job := k.jobs[0]
		k.jobs = slices.Delete(k.jobs, 0, 1)
		k.mu.Unlock()

		err := k.write(job)
		if job.release != nil {
			job.release()
		}
		k.mu.Lock()
		k.bytes -= job.bytes
		if err != nil {
			k.lost[job.plugin]++
		}
		was := k.failing
		k.failing = err != nil
		k.mu.Unlock()
		switch {
		case err != nil && !was:
			k.log.Error(notKept, "plugin", job.plugin, "file", job.name, "error", err)
		case err == nil && was:
			k.log.Info("files about crashes are kept again", "plugin", job.plugin, "file", job.name)
		}
	}
}

// wait blocks until all files are written, or ctx ends. It does not wait for a write that
// hangs in the kernel.
func (k *crashFiles) wait(ctx context.Context) {
	k.mu.Lock()
	idle := k.idle
	k.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// unkept returns the number of a plugin's files that could not be written.
func (k *crashFiles) unkept(plugin string) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost[plugin]
}

// write writes one file under its name, either whole or not at all.
func (k *crashFiles) write(job keepJob) (err error) {
	folder, err := openPrivate(k.dir, job.plugin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	// Old files are removed first, because the disk may be full of them.
	if err := prune(folder); err != nil {
		return err
	}
	temporary := tempPrefix + job.name
	f, err := folder.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(job.data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = folder.Rename(temporary, job.name)
	}
	if err != nil {
		return errors.Join(err, folder.Remove(temporary))
	}
	return prune(folder)
}

// openPrivate opens the plugin's folder in dir, and makes both if necessary. Only this
// user may have access to the folder, because the files contain span attributes and the
// output of a crashed plugin.
func openPrivate(dir, plugin string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	all, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Close() }() // nothing was written, so an error of Close has no effect
	if err := all.Mkdir(plugin, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	there, err := all.Lstat(plugin)
	if err != nil {
		return nil, err
	}
	folder, err := all.OpenRoot(plugin)
	if err != nil {
		return nil, err
	}
	opened, err := folder.Stat(".")
	if err == nil {
		err = checkPrivate(filepath.Join(dir, plugin), there, opened)
	}
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// checkPrivate returns an error unless the file at a path (there) is the folder that
// was opened, and only this user has access to the folder.
func checkPrivate(path string, there, opened fs.FileInfo) error {
	owner, _ := opened.Sys().(*syscall.Stat_t)
	switch {
	case !there.IsDir() || !os.SameFile(there, opened):
		return fmt.Errorf("%s is no folder (%v); remove it", path, there.Mode().Type())
	case owner != nil && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, this is user %d; remove it, or name another folder", path, owner.Uid, os.Geteuid())
	case opened.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s may be read by others (%v); chmod 700 it", path, opened.Mode().Perm())
	}
	return nil
}

// prune removes the oldest files beyond the bounds, and temporary files that are older
// than staleTemporary. Another process may prune the same folder at the same time.
func prune(folder *os.Root) error {
	dir, err := folder.Open(".")
	if err != nil {
		return err
	}
	list, err := dir.ReadDir(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return -cmp.Compare(a.Name(), b.Name()) })
	reports, batches, bytes := 0, 0, int64(0)
	for _, entry := range list { // newest first
		info, err := entry.Info()
		if err != nil {
			continue // another process has removed the file
		}
		name, surplus := entry.Name(), false
		switch {
		case strings.HasPrefix(name, reportPrefix):
			reports++
			surplus = reports > mostReports
		case strings.HasPrefix(name, keptPrefix):
			batches++
			bytes += info.Size()
			surplus = batches > 1 && (batches > mostKept || bytes > mostKeptBytes)
		case strings.HasPrefix(name, tempPrefix):
			surplus = time.Since(info.ModTime()) > staleTemporary
		}
		if surplus {
			if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
