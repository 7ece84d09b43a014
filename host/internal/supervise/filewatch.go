package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/slowdisk"
	"github.com/servetrace/servetrace/internal/launch"
)

// files has the identities of a plugin's files at one moment. The identity of a missing
// file is zero.
type files struct{ executable, configuration launch.Identity }

// fileWatch looks for changes of one plugin's files. Plugin.Run looks before each start,
// and while a plugin is incompatible or untrusted. checkExecutable looks for the status,
// and watch looks if Settings.Watch is set. Safe for concurrent use.
type fileWatch struct {
	cfg   *Settings
	entry pluginlist.Entry
	disk  slowdisk.Disk

	mu   sync.Mutex
	path string // path of the executable that was started last
	ran  files  // identities at the last start
}

// look returns the present identities of the files. It returns an error if the disk
// does not answer in time.
func (w *fileWatch) look(ctx context.Context) (files, error) {
	ctx, cancel := context.WithTimeout(ctx, slowdisk.Patience)
	defer cancel()
	return slowdisk.Look(ctx, w.disk, func() (files, error) { return w.lookAt(), nil })
}

// lookAt returns the identities of the files. It does not read the files. It blocks until
// the disk answers.
func (w *fileWatch) lookAt() files {
	var f files
	if w.entry.Attached {
		return f
	}
	if path, err := w.entry.Resolve(w.cfg.Plugins); err == nil {
		f.executable, _ = launch.Identify(path) // the identity of a missing file stays zero
	}
	if path := w.cfg.Plugins.PluginConfigs[w.entry.Name].File; path != "" {
		f.configuration, _ = launch.Identify(path)
	}
	return f
}

// noteStart remembers the files with which a process was started. It reports whether the
// executable differs from the executable of the process before.
func (w *fileWatch) noteStart(path string, f files) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = w.ran != (files{}) && w.ran.executable != f.executable
	w.path, w.ran = path, f
	return changed
}

// lastPath returns the path of the executable that was started last.
func (w *fileWatch) lastPath() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.path
}

// watch calls replace when the files have changed, once for each change. It waits until two
// looks find the same files, because a copy may be unfinished. begun are the files of the
// running process. watch blocks until ctx ends.
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
