package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/slowdisk"
	"github.com/servetrace/servetrace/internal/launch"
)

// files identify the files that a plugin is started from, as they were at a look. A
// file that is not there has the zero value.
type files struct{ executable, document launch.Identity }

// fileWatch looks at the files of one plugin. Safe for concurrent use.
type fileWatch struct {
	cfg   *Settings
	entry pluginlist.Entry
	disk  slowdisk.Disk

	mu   sync.Mutex
	path string // of the executable that was started last
	ran  files  // as it was then
}

// look looks at the files. A disk that does not answer in time is an error.
func (w *fileWatch) look(ctx context.Context) (files, error) {
	ctx, cancel := context.WithTimeout(ctx, slowdisk.Patience)
	defer cancel()
	return slowdisk.Look(ctx, w.disk, w.lookAt)
}

// lookAt looks at the files without reading them. It blocks as long as the disk.
func (w *fileWatch) lookAt() files {
	var f files
	if w.entry.Attached {
		return f
	}
	if path, err := w.entry.Resolve(w.cfg.List.PluginDirs); err == nil {
		f.executable, _ = launch.Identify(path) // none is the zero value
	}
	if path := w.cfg.List.PluginConfigs[w.entry.Name].File; path != "" {
		f.document, _ = launch.Identify(path)
	}
	return f
}

// started remembers the files of a start, and reports whether the executable is
// another than at the start before.
func (w *fileWatch) started(path string, f files) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = w.ran != (files{}) && w.ran.executable != f.executable
	w.path, w.ran = path, f
	return changed
}

// runs returns the path of the executable that was started last.
func (w *fileWatch) runs() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.path
}

// watch calls replace when the files have changed and are the same at two looks,
// because a copy may not be finished. Files that were tried are not tried again. It
// looks until ctx ends. begun are the files of the process that runs.
func (w *fileWatch) watch(ctx context.Context, begun files, replace func()) {
	if w.cfg.Watch <= 0 || w.entry.Attached {
		return
	}
	ticker := time.NewTicker(w.cfg.Watch)
	defer ticker.Stop()
	last, tried := begun, begun
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now, err := w.look(ctx)
		if err != nil {
			continue
		}
		if now == last && now != tried && now.executable != (launch.Identity{}) {
			tried = now
			replace()
		}
		last = now
	}
}
