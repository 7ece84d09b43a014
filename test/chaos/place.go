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

// Folders of a run.
const (
	folderPlugins = "folder" // plugins named by their folder
	pinnedPlugins = "pinned" // plugins named by their path
	goodFolder    = "good"   // intact copies of the executables
	crashFolder   = "crash"  // hello's crash reports
	outFolder     = "out"    // output of the plugins
	tempFolder    = "t"      // TMPDIR of all processes, with the sockets
)

// place is the folder of a run. Its TMPDIR also marks all processes of the run in their
// environment.
type place struct {
	dir string
}

// newPlace creates the folder. Its path is short because sockets are created in it.
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

// environ returns the environment for the processes of the run. hello passes TMPDIR to
// its plugins.
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

// processes returns the processes of the run with the given first argument, sorted by
// id. Zombies have no arguments.
func (p place) processes(path string) []int {
	var found []int
	for _, pid := range p.all() {
		if first, _, _ := strings.Cut(commandOf(pid), " "); first == path {
			found = append(found, pid)
		}
	}
	return found
}

// commandOf returns the command line of a process, or "" if it has ended.
func commandOf(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // none then
	return string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
}

// all returns the processes of the run, sorted by id.
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

// environOf returns the initial environment of a process, or nil if it has ended or
// belongs to another user.
func environOf(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\x00")
}

// socketFolders returns the folders that hello has made for the plugin's processes.
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

// leftFiles returns the files below the temporary folder, and hello's socket folders in
// other places.
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

// end kills the remaining processes of the run and removes the folder.
func (p place) end() error {
	for _, pid := range p.all() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	return os.RemoveAll(p.dir)
}

// statusBytes returns a size in /proc/PID/status.
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

// descriptors returns the targets of a process's open descriptors.
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
