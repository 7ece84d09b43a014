package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Folders of a place.
const (
	folderPlugins = "folder" // the plugins that are named by their folder
	pinnedPlugins = "pinned" // and the one by its path
	goodFolder    = "good"   // their bytes as they should be
	crashFolder   = "crash"  // hello's reports of crashes
	outFolder     = "out"    // what plugins write
	tempFolder    = "t"      // TMPDIR of all, where sockets are
)

// place is the folder of one run, and its mark on processes: all that belong
// to the run have it in their environment.
type place struct {
	dir string
}

// newPlace makes the folder. Its path is short, for sockets lie below it.
func newPlace() (place, error) {
	dir, err := os.MkdirTemp("/tmp", "chaos")
	if err != nil {
		return place{}, err
	}
	p := place{dir: dir}
	for _, name := range []string{folderPlugins, pinnedPlugins, goodFolder, crashFolder, outFolder, tempFolder} {
		if err := os.Mkdir(p.path(name), 0o700); err != nil {
			return p, errors.Join(err, os.RemoveAll(dir))
		}
	}
	return p, nil
}

func (p place) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

// environ is the environment of every process of the run. TMPDIR is handed on
// by hello to its plugins, and by those to theirs.
func (p place) environ(more ...string) []string {
	path := "PATH="
	for _, pair := range new(exec.Cmd).Environ() {
		if strings.HasPrefix(pair, path) {
			path = pair
		}
	}
	return append([]string{path, p.mark()}, more...)
}

func (p place) mark() string { return "TMPDIR=" + p.path(tempFolder) }

// install copies a program.
func install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w; make build builds it", err)
	}
	defer in.Close() //nolint:errcheck // nothing was written
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chmod(to, 0o755)) // whatever the umask
}

// processes are those of the run with that first argument, in the order of
// their ids. A zombie has none.
func (p place) processes(path string) []int {
	var found []int
	for _, pid := range p.all() {
		if first, _, _ := strings.Cut(commandOf(pid), " "); first == path {
			found = append(found, pid)
		}
	}
	return found
}

// commandOf is the command line of a process, empty where it has ended.
func commandOf(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // none then
	return string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
}

// all are the processes of the run, in the order of their ids.
func (p place) all() []int {
	var found []int
	entries, _ := os.ReadDir("/proc") // it was there at the start
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && slices.Contains(environOf(pid), p.mark()) {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found
}

// environOf is the environment that a process was started with; none where it
// has ended, or is another user's.
func environOf(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\x00")
}

// socketFolders are those that hello has made for the plugin's processes.
func (p place) socketFolders(path string) []string {
	var dirs []string
	for _, pid := range p.processes(path) {
		for _, pair := range environOf(pid) {
			if dir, ok := strings.CutPrefix(pair, "PLUGIN_UNIX_SOCKET_DIR="); ok && strings.HasPrefix(dir, p.dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// leftSockets are the files below the temporary folder, and folders of sockets
// that lie elsewhere.
func (p place) leftFiles(servicePID int) ([]string, error) {
	var left []string
	err := filepath.WalkDir(p.path(tempFolder), func(path string, _ fs.DirEntry, err error) error {
		if path != p.path(tempFolder) {
			left = append(left, path)
		}
		return err
	})
	for _, base := range []string{"/tmp", "/dev/shm"} {
		found, globErr := filepath.Glob(fmt.Sprintf("%s/servetrace-%d-*", base, servicePID))
		left = append(left, found...)
		err = errors.Join(err, globErr)
	}
	return left, err
}

// end kills what is left of the run and removes the folder.
func (p place) end() error {
	for _, pid := range p.all() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	return os.RemoveAll(p.dir)
}

// statusBytes is a size in /proc/PID/status.
func statusBytes(pid int, field string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if _, err := fmt.Sscanf(line, field+": %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

// descriptors are what the open descriptors of a process lead to.
func descriptors(pid int) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil {
			list = append(list, target)
		}
	}
	return list, nil
}
