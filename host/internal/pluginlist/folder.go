package pluginlist

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

	"github.com/servetrace/servetrace/host/internal/slowdisk"
)

// Expand returns the plugins of the list at this moment: a folder is replaced by its
// executables, in the order of their names. A folder that is missing or empty has no
// plugins. That is only a warning, because files may be added later.
//
// The first time, running is nil, and faults are errors: two plugins of one name, and a
// name or a pin for a folder. Later, running has the present plugins, and faults are
// warnings: a running plugin with a fault stays in the list. So do the plugins of a
// folder that cannot be read.
func (s *Settings) Expand(running []Entry) (list []Entry, warnings []string, err error) {
	parsed, err := s.entries()
	if err != nil {
		return nil, nil, err
	}
	x := expansion{running: running}
	folders := false
	for i, at := range lookAll(parsed) {
		folders = x.take(parsed[i], at) || folders
	}
	x.list = slices.DeleteFunc(x.list, func(e Entry) bool { return e.Exporter != "" && indexOf(x.list, e.Exporter) < 0 })
	if folders { // without folders Validate has checked the names
		for _, text := range unknownNames(s, x.list) {
			x.warn("%s", text)
		}
	}
	return x.list, x.warnings, errors.Join(x.faults...)
}

// sight is the result of a look at an entry of the list, which may be a folder. err is
// set if the folder cannot be read, or if the disk does not answer.
type sight struct {
	folder bool
	// files are the paths of the plugins in a folder, sorted by name.
	files []string
	err   error
}

// lookAll looks at all entries of a list at once, because a disk that does not answer
// must not delay the plugins on another disk.
func lookAll(list []Entry) []sight {
	ctx, cancel := context.WithTimeout(context.Background(), slowdisk.Patience)
	defer cancel()
	sights := make([]sight, len(list))
	var all sync.WaitGroup
	for i, e := range list {
		all.Go(func() {
			var err error
			if sights[i], err = slowdisk.Aside(ctx, func() (sight, error) { return e.look(), nil }); err != nil {
				sights[i] = sight{folder: e.Folder, err: err}
			}
		})
	}
	all.Wait()
	return sights
}

// look reports whether an entry is a folder, and which plugins are in the folder. It
// blocks until the disk answers.
func (e Entry) look() sight {
	s := sight{folder: e.lookFolder()}
	if !s.folder {
		return s
	}
	folder := strings.TrimSuffix(e.Where, "/")
	files, err := os.ReadDir(folder + "/")
	s.err = err
	for _, file := range files {
		if path := folder + "/" + file.Name(); isPlugin(file.Name(), path) {
			s.files = append(s.files, path)
		}
	}
	return s
}

// lookFolder reports whether an entry is a folder, also if the list has no slash at its
// end. It blocks until the disk answers.
func (e Entry) lookFolder() bool {
	if e.Folder || e.Attached || !strings.Contains(e.Where, "/") {
		return e.Folder
	}
	info, err := os.Stat(e.Where)
	return err == nil && info.IsDir()
}

// isFolder is lookFolder with a time limit. If the disk does not answer, a slash at the
// end of the entry decides.
func (e Entry) isFolder() bool {
	ctx, cancel := context.WithTimeout(context.Background(), slowdisk.Patience)
	defer cancel()
	folder, err := slowdisk.Aside(ctx, func() (bool, error) { return e.lookFolder(), nil })
	return folder || err != nil && e.Folder
}

type expansion struct {
	running  []Entry // the plugins at the last Expand; nil in the first Expand
	list     []Entry
	warnings []string
	faults   []error
}

// take adds an entry to the list, or the plugins of a folder. It reports whether the entry
// is a folder.
func (x *expansion) take(e Entry, at sight) (folder bool) {
	// If the disk does not answer, an entry counts as a folder if it ends in a slash,
	// or if running plugins came from it.
	folder = at.folder || at.err != nil && slices.ContainsFunc(x.running, func(r Entry) bool { return r.From == e.Where && r.Processor == e.Processor })
	switch {
	case !folder:
		x.add(e)
	case e.Named || e.Digest != "":
		_, err := folderEntry(e.Name, e.Named, e.Where+"/", e.Digest)
		x.fault(fmt.Errorf("%s: entry %q: %w", e.variable(), e.Where, err))
		x.keep(func(r Entry) bool { return r == e })
	default:
		x.addFolder(e, at)
	}
	return folder
}

func (x *expansion) warn(format string, args ...any) {
	x.warnings = append(x.warnings, fmt.Sprintf(format, args...))
}

// fault reports an error in the first Expand. In a later Expand it only warns, because
// running plugins must stay.
func (x *expansion) fault(err error) {
	if x.running == nil {
		x.faults = append(x.faults, err)
		return
	}
	x.warn("%v", err)
}

// keep adds the running plugins for which stay returns true.
func (x *expansion) keep(stay func(Entry) bool) {
	for _, e := range x.running {
		if stay(e) {
			x.add(e)
		}
	}
}

// add adds a plugin to the list. If the list has a plugin with the same name, it keeps the
// running plugin, or else the first.
func (x *expansion) add(e Entry) {
	at := slices.IndexFunc(x.list, func(other Entry) bool { return other.Name == e.Name })
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
	text := fmt.Sprintf("%s: plugin %q is there twice, %s and %s", e.variable(), e.Name, other.Where, e.Where)
	switch {
	case x.running != nil:
		x.warn("%s: %s is taken, the other is not; rename its file, or remove it", text, taken.Where)
	case other.From == "":
		x.fault(fmt.Errorf("%s; write NAME=%s to give the first another name, or rename the other", text, other.Where))
	default:
		x.fault(fmt.Errorf("%s; rename one of the files, or remove it", text))
	}
}

// addFolder adds the executables of a folder to the list.
func (x *expansion) addFolder(folder Entry, seen sight) {
	where, variable := folder.Where, folder.variable()
	switch {
	case errors.Is(seen.err, fs.ErrNotExist):
		x.warn("%s: there is no folder %s: it brings no plugin until it is there and plugins are reloaded (SIGHUP)", variable, where)
		return
	case seen.err != nil:
		x.warn("%s: folder %s cannot be read, so its plugins stay as they are: %v", variable, where, cmp.Or(errors.Unwrap(seen.err), seen.err))
		x.keep(func(r Entry) bool { return r.From == where && r.Processor == folder.Processor })
		return
	}
	for _, path := range seen.files {
		e, err := Entry{Name: fileName(path), Where: path, From: where, Processor: folder.Processor}.checked()
		if err != nil {
			x.warn("%s: %s is left out: its name without the extension must be letters, digits, dots, dashes and underscores, 63 at most; rename it", variable, path)
			continue
		}
		x.add(e)
	}
	if len(seen.files) == 0 {
		x.warn("%s: folder %s has no executable: it brings no plugin until there is one and plugins are reloaded (SIGHUP)", variable, where)
	}
}

// leftovers are endings of the names of files that editors and package managers leave
// in a folder.
var leftovers = []string{"~", ".bak", ".tmp", ".swp"}

// isPlugin reports whether a file of a folder is a plugin: an executable that is
// neither hidden nor a leftover. Links are followed.
func isPlugin(name, path string) bool {
	if strings.HasPrefix(name, ".") || slices.ContainsFunc(leftovers, func(end string) bool { return strings.HasSuffix(name, end) }) {
		return false
	}
	return isExecutable(path)
}

// isExecutable reports whether a path is an executable file. It follows links.
func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// unknownNames returns warnings about settings that name a single plugin: a warning for
// each name that no plugin of the list has.
func unknownNames(s *Settings, list []Entry) []string {
	known := map[string]bool{"": true, EveryPlugin: true}
	for _, e := range list {
		known[e.Name] = true
	}
	var texts []string
	look := func(variable string, names []string) {
		for _, name := range names {
			if !known[name] {
				texts = append(texts, fmt.Sprintf("%s: there is no plugin %q, and no folder of %s has brought one so far", variable, name, EnvPlugins))
			}
		}
	}
	look(EnvPluginConfig, sortedKeys(s.PluginConfigs))
	look(EnvPluginEnv, sortedKeys(s.PluginEnv))
	look(EnvPluginMemoryLimit, sortedKeys(s.PluginMemoryLimit))
	look(EnvPluginMaxProcs, sortedKeys(s.PluginMaxProcs))
	look(EnvExporterProcessors, sortedKeys(s.ExporterProcessors))
	look(EnvProcessorFail, sortedKeys(s.FailOpen))
	return texts
}
