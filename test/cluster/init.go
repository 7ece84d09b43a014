//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cgroupRoot is the parent of all control groups of the bed.
const cgroupRoot = "/servetrace-cluster"

// A machine is all that process 1 of a machine needs.
type machine struct {
	Hostname string
	Dir      string
	Env      []string
	Files    map[string]string
	Daemons  []daemon
}

// A daemon is a program that runs as long as its machine.
type daemon struct {
	Name string
	Args []string
	// Await is a file that must exist before the daemon starts.
	Await string
}

// runInit is process 1 of a machine. It starts the daemons when standard input ends, and
// reaps processes until it is killed.
func runInit(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var m machine
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if err := m.prepare(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	// Ctrl-C of the terminal is not for a machine, and its session has no terminal.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for _, d := range m.Daemons {
		if err := m.start(d); err != nil {
			return err
		}
	}
	for range children {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
			_, _ = fmt.Fprintf(os.Stderr, "process %d ended: status %d, signal %d\n", pid, status.ExitStatus(), status.Signal())
		}
	}
	return nil
}

// prepare makes the machine's own file systems, name and files.
func (m *machine) prepare() error {
	mounts := []struct {
		source, target, kind string
		flags                uintptr
	}{
		// First apart from the host, then shared with the pods.
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{"proc", "/proc", "proc", syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC},
		{"tmpfs", "/run", "tmpfs", syscall.MS_NOSUID},
		{"tmpfs", "/var/lib", "tmpfs", syscall.MS_NOSUID},
		{"tmpfs", "/var/log", "tmpfs", syscall.MS_NOSUID},
		{"", "/", "", syscall.MS_REC | syscall.MS_SHARED},
	}
	for _, mount := range mounts {
		if err := syscall.Mount(mount.source, mount.target, mount.kind, mount.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", mount.target, err)
		}
	}
	for _, d := range []string{"/var/lib/kubelet", "/var/log/pods", "/run/netns"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Sethostname([]byte(m.Hostname)); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	for path, text := range m.Files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return makeCgroups()
}

// start starts a daemon, with its log in the folder of the machine. The shell waits for a
// file and is replaced by the daemon.
func (m *machine) start(d daemon) error {
	log, err := os.Create(filepath.Join(m.Dir, d.Name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the daemon has a descriptor of its own
	args := d.Args
	if d.Await != "" {
		args = append([]string{"/bin/sh", "-c", `until [ -e "$0" ]; do sleep 0.1; done; exec "$@"`, d.Await}, args...)
	}
	// The daemons are found by the PATH of the machine.
	for _, variable := range m.Env {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	_, err = os.StartProcess(path, args, &os.ProcAttr{Dir: m.Dir, Files: []*os.File{nil, log, log}, Sys: &syscall.SysProcAttr{Setsid: true}})
	return err
}

// hierarchies returns the roots of all cgroup file systems.
func hierarchies() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	list, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return nil // the pattern is right
	}
	for i := range list {
		list[i] = filepath.Dir(list[i])
	}
	return list
}

// makeCgroups makes the parent of the bed's groups.
func makeCgroups() error {
	for _, root := range hierarchies() {
		dir := root + cgroupRoot
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A group of version 1 has no processors and no memory of its own at first.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				continue // another hierarchy
			}
			if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroups removes the groups of the bed, of which no process is left.
func removeCgroups() error {
	var err error
	for range 50 {
		err = nil
		for _, root := range hierarchies() {
			err = errors.Join(err, removeCgroup(root+cgroupRoot))
		}
		if err == nil {
			return nil
		}
		// The kernel has not buried all processes yet.
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return syscall.Rmdir(dir)
}
