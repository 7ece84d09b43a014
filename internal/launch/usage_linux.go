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

// maxRSS is the most memory a process had resident, in bytes.
func maxRSS(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int64(usage.Maxrss) << 10 //nolint:unconvert // of 32 bits on some machines
	}
	return 0
}

// oomCounter is the kernel's count of out-of-memory kills in a process's
// cgroup, as it stood at the process's start. The zero value knows nothing.
type oomCounter struct {
	file string
	base uint64
}

// cgroups is where the cgroups of version 2 are mounted; version 1 has them in
// a folder per controller, and then version 2, if it is there, in "unified".
const cgroups = "/sys/fs/cgroup"

// newOOMCounter finds the counter of a process that runs.
func newOOMCounter(pid int) oomCounter {
	membership, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return oomCounter{} // it has gone already
	}
	return newOOMCounterOf(oomFiles(cgroups, string(membership)))
}

// newOOMCounterOf takes the first of files that has a count.
func newOOMCounterOf(files []string) oomCounter {
	for _, file := range files {
		if n, ok := readOOMKills(file); ok {
			return oomCounter{file: file, base: n}
		}
	}
	return oomCounter{}
}

// oomFiles are the files that may hold the count, given what /proc/PID/cgroup
// says: lines "ID:CONTROLLERS:PATH", of version 2 "0::PATH".
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

// readOOMKills reads the line "oom_kill N", which both versions have.
func readOOMKills(file string) (uint64, bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }() // read only
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, err := strconv.ParseUint(count, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// since tells what was counted since the process's start.
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

// widen makes a pipe hold more, if the kernel allows it.
func widen(pipe *os.File, size int) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = conn.Control(func(fd uintptr) { // closed: as wanted
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) // else it stays as it is
	})
}
