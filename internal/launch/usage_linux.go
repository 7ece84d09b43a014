package launch

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRSS returns the highest resident memory of a process, in bytes.
func maxRSS(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int64(usage.Maxrss) << 10 //nolint:unconvert // it has 32 bits on some machines
	}
	return 0
}

// oomCounter holds the kernel's count of out-of-memory kills in the cgroup of a process, as
// it was at the start of the process. The zero value means that the count is unknown.
type oomCounter struct {
	file string // the kernel's file with the count; empty if there is none
	base uint64 // the count at the start of the process
}

// cgroups is the mount point of the kernel's cgroups. In version 1 of cgroups it has a folder
// for each controller.
const cgroups = "/sys/fs/cgroup"

func newOOMCounter(pid int) oomCounter {
	membership, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return oomCounter{} // the process has ended
	}
	return newOOMCounterOf(oomFiles(cgroups, string(membership)))
}

// newOOMCounterOf returns a counter for the first of these files that has a count.
func newOOMCounterOf(files []string) oomCounter {
	for _, file := range files {
		if n, ok := readOOMKills(file); ok {
			return oomCounter{file: file, base: n}
		}
	}
	return oomCounter{}
}

// oomFiles returns the files that may have the count of out-of-memory kills. membership is
// the content of /proc/PID/cgroup: lines "ID:CONTROLLERS:PATH", in version 2 "0::PATH". root is
// the mount point of the cgroups.
func oomFiles(root, membership string) (files []string) {
	for line := range strings.Lines(membership) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case controllers == "":
			files = append(files, filepath.Join(root, path, "memory.events"))
		case controllers == "memory":
			files = append(files, filepath.Join(root, "memory", path, "memory.oom_control"))
		}
	}
	return files
}

// readOOMKills returns the number in the line "oom_kill N" of a file, which both versions of
// cgroups have. It returns false if there is no such line.
func readOOMKills(file string) (uint64, bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }() // an error has no effect: the file was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, err := strconv.ParseUint(count, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// since reports whether the kernel has counted an out-of-memory kill since the start of the
// process.
func (c oomCounter) since() oomKills {
	now, ok := readOOMKills(c.file)
	switch {
	case !ok:
		return oomUnknown
	case now > c.base:
		return oomCounted
	}
	return oomNone
}

// widen sets the size of a pipe, in bytes, if the kernel allows it.
func widen(pipe *os.File, size int) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return // the pipe is closed
	}
	_ = conn.Control(func(fd uintptr) { // fails if the pipe is closed, which does not matter
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) // a failure leaves the size as it is
	})
}
