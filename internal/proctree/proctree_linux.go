package proctree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rounds bounds how often Kill looks again after it has found something, which
// may have had time to fork.
const rounds = 10

// Kill sends SIGKILL to every process with the mark and waits until they have
// ended, then looks again, for they may have forked meanwhile; it returns how
// many it killed. It blocks until a look finds none, or ctx ends, which is an
// error; as is a process that is no more to be killed (of another user's by
// now). Safe for concurrent use.
func Kill(ctx context.Context, mark Mark) (int, error) {
	killed := 0
	for range rounds {
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
		ended := await(ctx, found)
		reap(found)
		closeAll(found)
		if err = errors.Join(err, ended); err != nil {
			return killed, err
		}
	}
	return killed, errors.New("processes with the mark fork faster than they are killed")
}

// Await blocks until the processes that have the mark now have ended, or ctx
// has, which is an error. Safe for concurrent use.
func Await(ctx context.Context, mark Mark) error {
	found, err := find(mark)
	if err != nil {
		return err
	}
	defer closeAll(found)
	return await(ctx, found)
}

// process is one that was found. Its descriptor stands for it, whoever has its
// number later.
type process struct{ pid, fd int }

func closeAll(list []process) {
	for _, p := range list {
		_ = unix.Close(p.fd) // it only stood for a process
	}
}

// pause is how often the end of ctx is looked for.
const pause = 20 * time.Millisecond

// await blocks until all have ended or ctx has.
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

// ended waits for a moment and tells whether the process has ended.
func ended(p process) bool {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(pause.Milliseconds()))
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// reap collects what has fallen to this process, as all orphans do to the first
// of a container. Nobody else waits for them: they were not started here.
func reap(list []process) {
	for _, p := range list {
		_ = unix.Waitid(unix.P_PIDFD, p.fd, nil, unix.WEXITED|unix.WNOHANG, nil) // ECHILD: somebody else's
	}
}

// find gives the processes with the mark. The caller closes them.
func find(mark Mark) ([]process, error) {
	pids, err := running()
	if err != nil {
		return nil, err
	}
	var (
		found []process
		key   = []byte(mark.Variable + "=")
		uid   = uint32(os.Geteuid())
		self  = os.Getpid()
		buf   = make([]byte, environChunk)
	)
	for _, pid := range pids {
		if pid == self || !marked(pid, uid, key, mark.Is, &buf) {
			continue
		}
		// Now the process is known by its number. It is fixed, and looked at
		// again: the number may have become another's.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		if marked(pid, uid, key, mark.Is, &buf) {
			found = append(found, process{pid, fd})
		} else {
			_ = unix.Close(fd) // it only stood for a process
		}
	}
	return found, nil
}

// running gives the ids of all processes.
func running() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }() // read only
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

// Environments are read in pieces of environChunk bytes up to mostEnviron: the
// kernel allows 6 MiB for arguments and environment together.
const (
	environChunk = 64 << 10
	mostEnviron  = 8 << 20
)

// marked tells whether a process of user uid has the mark. One that can not be
// read has not.
func marked(pid int, uid uint32, key []byte, is func(string) bool, buf *[]byte) bool {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/environ", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // read only
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || stat.Uid != uid {
		return false
	}
	environ, err := readAll(fd, buf)
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, key); ok {
			return is(string(value)) // the first counts, as with getenv
		}
	}
	return false
}

// readAll reads a file into buf, which grows.
func readAll(fd int, buf *[]byte) ([]byte, error) {
	for n := 0; ; {
		read, err := unix.Read(fd, (*buf)[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case read == 0:
			return (*buf)[:n], nil
		}
		if n += read; n == len(*buf) {
			if n >= mostEnviron {
				return nil, io.ErrShortBuffer
			}
			*buf = slices.Grow(*buf, n)[:2*n]
		}
	}
}

// Reap waits for the end of all processes of a group that was killed, and
// collects those that have fallen to this process. It blocks until there are
// none, or ctx ends. It does nothing in a process to which no orphans fall. The
// group's own leader is left to whoever started it. Safe for concurrent use.
func Reap(ctx context.Context, group int) {
	if !adopts() {
		return
	}
	for members(group) && ctx.Err() == nil {
		select {
		case <-time.After(pause / 4):
		case <-ctx.Done():
		}
	}
}

// adopts tells whether orphans fall to this process.
func adopts() bool {
	if os.Getpid() == 1 {
		return true
	}
	var set int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&set)), 0, 0, 0)
	return err == nil && set != 0
}

// members collects what is to be collected of a group and tells whether some of
// it is still there.
func members(group int) bool {
	pids, err := running()
	if err != nil {
		return false
	}
	left := false
	for _, pid := range pids {
		state, parent, pgrp := look(pid)
		if pid == group || pgrp != group {
			continue
		}
		left = true
		if state == "Z" && parent == os.Getpid() {
			var status unix.WaitStatus
			_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil) // of use to nobody
		}
	}
	return left
}

// look gives state, parent and group of a process.
func look(pid int) (state string, parent, group int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, 0
	}
	// The name, in brackets, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return "", 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	group, _ = strconv.Atoi(string(fields[2]))
	return string(fields[0]), parent, group
}
