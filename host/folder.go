package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// expand gives the plugins of the list as they are now: a folder stands for its
// executables, in the order of their names. A folder that is missing or empty
// brings none, which is a warning: files may come.
//
// Before the first time running is nil, and what can not be right is an error:
// a name that comes twice, a name or a pin of what is a folder. From then on
// running are the plugins that there are, and such things are warnings: the one
// that runs stays. So do those of a folder that can not be read.
func (c *Config) expand(running []entry) (list []entry, warnings []string, err error) {
	parsed, err := parseList(c.Plugins)
	if err != nil {
		return nil, nil, err
	}
	x := expansion{running: running}
	folders := false
	for i, at := range lookAll(parsed) {
		folders = x.take(parsed[i], at) || folders
	}
	if folders { // else Validate has seen to it
		for _, text := range c.namedInVain(x.list) {
			x.warn("%s", text)
		}
	}
	return x.list, x.warnings, errors.Join(x.faults...)
}

// sight is what an entry of the list leads to. An error is that of a folder that
// can not be read, or of a disk that does not answer.
type sight struct {
	folder bool
	files  []string // paths of those of a folder that are taken for plugins, sorted by name
	err    error
}

// lookAll looks at all entries of a list at once, for a disk that does not
// answer must not cost the plugins on another.
func lookAll(list []entry) []sight {
	ctx, cancel := context.WithTimeout(context.Background(), diskPatience)
	defer cancel()
	sights := make([]sight, len(list))
	var all sync.WaitGroup
	for i, e := range list {
		all.Go(func() {
			var err error
			if sights[i], err = aside(ctx, e.look); err != nil {
				sights[i] = sight{folder: e.folder, err: err}
			}
		})
	}
	all.Wait()
	return sights
}

// look blocks as long as the disk.
func (e entry) look() sight {
	s := sight{folder: e.folder}
	if !s.folder && !e.attached && strings.Contains(e.where, "/") {
		info, err := os.Stat(e.where)
		s.folder = err == nil && info.IsDir()
	}
	if !s.folder {
		return s
	}
	folder := strings.TrimSuffix(e.where, "/")
	files, err := os.ReadDir(folder + "/")
	s.err = err
	for _, file := range files {
		if path := folder + "/" + file.Name(); isPlugin(file.Name(), path) {
			s.files = append(s.files, path)
		}
	}
	return s
}

// isFolder tells whether an entry of the list is a folder, also one that is
// written without its slash. On a disk that does not answer it is none.
func (e entry) isFolder() bool { return lookAll([]entry{e})[0].folder }

// expansion is a list that is being expanded.
type expansion struct {
	running  []entry // nil: this is the first time
	list     []entry
	warnings []string
	faults   []error
}

// take puts an entry on the list, or what is in it, and tells whether it is a
// folder.
func (x *expansion) take(e entry, at sight) (folder bool) {
	// One that does not answer is known by its slash, or by what it has brought.
	folder = at.folder || at.err != nil && slices.ContainsFunc(x.running, func(r entry) bool { return r.from == e.where })
	switch {
	case !folder:
		x.add(e)
	case e.named || e.digest != "":
		_, err := folderEntry(e.name, e.named, e.where+"/", e.digest)
		x.fault(fmt.Errorf("%s: entry %q: %w", EnvPlugins, e.where, err))
		x.keep(func(r entry) bool { return r == e })
	default:
		x.addFolder(e.where, at)
	}
	return folder
}

func (x *expansion) warn(format string, args ...any) {
	x.warnings = append(x.warnings, fmt.Sprintf(format, args...))
}

// fault is an error the first time, and a warning from then on.
func (x *expansion) fault(err error) {
	if x.running == nil {
		x.faults = append(x.faults, err)
		return
	}
	x.warn("%v", err)
}

// keep takes over those plugins that run and that is true of.
func (x *expansion) keep(is func(entry) bool) {
	for _, e := range x.running {
		if is(e) {
			x.add(e)
		}
	}
}

// add puts a plugin on the list. Of two of a name the first is taken, or that
// which runs.
func (x *expansion) add(e entry) {
	at := slices.IndexFunc(x.list, func(other entry) bool { return other.name == e.name })
	if at < 0 {
		x.list = append(x.list, e)
		return
	}
	other := x.list[at]
	if other == e {
		return
	}
	taken := other
	if slices.Contains(x.running, e) {
		taken = e
	}
	x.list[at] = taken
	text := fmt.Sprintf("%s: plugin %q is there twice, %s and %s", EnvPlugins, e.name, other.where, e.where)
	switch {
	case x.running != nil:
		x.warn("%s: %s is taken, the other is not; rename its file, or remove it", text, taken.where)
	case other.from == "":
		x.fault(fmt.Errorf("%s; write NAME=%s to name the first apart, or rename the other", text, other.where))
	default:
		x.fault(fmt.Errorf("%s; rename one of the files, or remove it", text))
	}
}

// addFolder puts the executables of a folder on the list.
func (x *expansion) addFolder(where string, seen sight) {
	switch {
	case errors.Is(seen.err, fs.ErrNotExist):
		x.warn("%s: there is no folder %s: it brings no plugin until it is there and plugins are reloaded (SIGHUP)", EnvPlugins, where)
		return
	case seen.err != nil:
		x.warn("%s: folder %s can not be read, so its plugins stay what they were: %v", EnvPlugins, where, cmp.Or(errors.Unwrap(seen.err), seen.err))
		x.keep(func(r entry) bool { return r.from == where })
		return
	}
	for _, path := range seen.files {
		e, err := entry{name: fileName(path), where: path, from: where}.checked()
		if err != nil {
			x.warn("%s: %s is left out: its name without the extension must be letters, digits, dots, dashes and underscores, 63 at most; rename it", EnvPlugins, path)
			continue
		}
		x.add(e)
	}
	if len(seen.files) == 0 {
		x.warn("%s: folder %s has no executable: it brings no plugin until there is one and plugins are reloaded (SIGHUP)", EnvPlugins, where)
	}
}

// leftovers are endings of files that editors and package managers leave.
var leftovers = []string{"~", ".bak", ".tmp", ".swp"}

// isPlugin tells whether a file of a folder is taken for a plugin: an executable
// that is not hidden, nor a leftover. Links are followed.
func isPlugin(name, path string) bool {
	if strings.HasPrefix(name, ".") || slices.ContainsFunc(leftovers, func(end string) bool { return strings.HasSuffix(name, end) }) {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// namedInVain tells of settings for plugins that no folder has brought.
func (c *Config) namedInVain(list []entry) []string {
	known := map[string]bool{"": true, everyPlugin: true}
	for _, e := range list {
		known[e.name] = true
	}
	var texts []string
	look := func(variable string, names []string) {
		for _, name := range names {
			if !known[name] {
				texts = append(texts, fmt.Sprintf("%s: there is no plugin %q, and no folder of %s has brought one so far", variable, name, EnvPlugins))
			}
		}
	}
	look(EnvPluginConfig, sortedKeys(c.PluginConfigs))
	look(EnvPluginEnv, sortedKeys(c.PluginEnv))
	look(EnvPluginMemoryLimit, sortedKeys(c.PluginMemoryLimit))
	look(EnvPluginMaxProcs, sortedKeys(c.PluginMaxProcs))
	return texts
}
