package proctree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRounds bounds the number of searches in one call of Kill.
const maxRounds = 10

// Kill sends SIGKILL to every process with the mark, waits until they have ended, and searches
// again, because they may have forked meanwhile. It blocks until a search finds no process. It
// returns the number of killed processes. It returns an error if ctx ends first, or if there
// are still processes after maxRounds searches. It also returns an error if a process cannot be
// killed, for example because it now runs as another user. Kill is safe for concurrent use.
func Kill(ctx context.Context, mark Mark) (int, error) {
	killed := 0
	for range maxRounds {
		found, err := find(mark)
		if err != nil || len(found) == 0 {
			return killed, err
		}
		for _, p := range found {
			if e := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0); e != nil && !errors.Is(e, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("kill process %d: %w", p.pid, e))
			}
		}
		killed += len(found)
		waitErr := await(ctx, found)
		reap(found)
		closeAll(found)
		if err = errors.Join(err, waitErr); err != nil {
			return killed, err
		}
	}
	return killed, errors.New("processes with the mark fork faster than they are killed")
}

// Await blocks until the processes that have the mark at the time of the call have ended. It
// returns an error if ctx ends first. It is safe for concurrent use.
func Await(ctx context.Context, mark Mark) error {
	found, err := find(mark)
	if err != nil {
		return err
	}
	defer closeAll(found)
	return await(ctx, found)
}

// process is a running process. fd is a pidfd, which identifies the process even after its end,
// when another process may get its id.
type process struct{ pid, fd int }

func closeAll(list []process) {
	for _, p := range list {
		_ = unix.Close(p.fd) // a pidfd has nothing to flush
	}
}

// pollInterval is the longest time that the function ended blocks. Its caller checks the context
// between two calls.
const pollInterval = 20 * time.Millisecond

// await blocks until all processes have ended or ctx ends.
func await(ctx context.Context, list []process) error {
	for _, p := range list {
		for !ended(p) {
			if ctx.Err() != nil {
				return fmt.Errorf("process %d has not ended: %w", p.pid, context.Cause(ctx))
			}
		}
	}
	return nil
}

// ended waits at most pollInterval for the end of the process. It reports whether the
// process has ended.
func ended(p process) bool {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(pollInterval.Milliseconds()))
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// reap reaps ended processes that the kernel has made children of this process, as it does for the
// first process of a container. No other goroutine waits for them, because this process did not
// start them.
func reap(list []process) {
	for _, p := range list {
		_ = unix.Waitid(unix.P_PIDFD, p.fd, nil, unix.WEXITED|unix.WNOHANG, nil) // fails with ECHILD if the process is no child of this process
	}
}

// find returns the processes with the mark. The caller must close them.
func find(mark Mark) ([]process, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, err
	}
	var found []process
	uid, self := uint32(os.Geteuid()), os.Getpid()
	for _, pid := range pids {
		if pid == self || !hasMark(pid, uid, mark) {
			continue
		}
		// Another process may have got the id before PidfdOpen, so the mark is checked again.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // the process has ended
		}
		if hasMark(pid, uid, mark) {
			found = append(found, process{pid, fd})
		} else {
			_ = unix.Close(fd) // a pidfd has nothing to flush
		}
	}
	return found, nil
}

func listPIDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }() // an error has no effect: the file was only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// maxEnviron bounds the bytes that are read of an environment. The kernel allows 6 MiB
// for arguments and environment together.
const maxEnviron = 8 << 20

// hasMark reports whether a process of the user uid has the mark. It returns false if
// the environment cannot be read.
func hasMark(pid int, uid uint32, mark Mark) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // an error has no effect: the file was only read
	var stat unix.Stat_t
	if unix.Fstat(int(f.Fd()), &stat) != nil || stat.Uid != uid {
		return false
	}
	environ, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(mark.Variable+"=")); ok {
			return mark.Is(string(value)) // the first value counts, as with getenv
		}
	}
	return false
}

// Reap reaps the processes of a killed process group that the kernel has made children of this
// process. It blocks until no process of the group is left, or ctx ends. It returns at once if
// this process does not get orphans as children. It does not reap the leader of the group, which
// the leader's parent must do. Reap is safe for concurrent use.
func Reap(ctx context.Context, group int) {
	if !isReaper() {
		return
	}
	for reapMembers(group) && ctx.Err() == nil {
		select {
		case <-time.After(pollInterval / 4):
		case <-ctx.Done():
		}
	}
}

// isReaper reports whether the kernel makes orphans children of this process.
func isReaper() bool {
	if os.Getpid() == 1 {
		return true
	}
	var set int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&set)), 0, 0, 0)
	return err == nil && set != 0
}

// reapMembers reaps the ended processes of a group that are children of this process. The leader
// of the group does not count. It reports whether it has found any process of the group.
func reapMembers(group int) bool {
	pids, err := listPIDs()
	if err != nil {
		return false
	}
	left := false
	for _, pid := range pids {
		state, parent, pgrp := readStat(pid)
		if pid == group || pgrp != group {
			continue
		}
		left = true
		if state == "Z" && parent == os.Getpid() {
			var status unix.WaitStatus
			_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil) // the exit status is not needed
		}
	}
	return left
}

// readStat returns the state, the parent and the process group of a process. It returns zeros if
// the process has ended.
func readStat(pid int) (state string, parent, group int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, 0
	}
	// The fields follow the name of the process in parentheses, which may contain any byte.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return "", 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	group, _ = strconv.Atoi(string(fields[2]))
	return string(fields[0]), parent, group
}
