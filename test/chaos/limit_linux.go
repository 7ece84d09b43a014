package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// limitMemory limits the address space to a little more than the process has.
func limitMemory(pid int) error {
	size, err := statusBytes(pid, "VmSize")
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	const room = 1 << 20
	return limit(pid, unix.RLIMIT_AS, uint64(size)+room)
}

// limitFiles prevents the process from opening files.
func limitFiles(pid int) error { return limit(pid, unix.RLIMIT_NOFILE, 3) }

// unlimit removes both limits.
func unlimit(pid int) error {
	const all = ^uint64(0)
	return errors.Join(limit(pid, unix.RLIMIT_AS, all), limit(pid, unix.RLIMIT_NOFILE, all))
}

// limit sets the soft limit, at most to the hard limit, so that it can be removed
// without privileges.
func limit(pid, resource int, most uint64) error {
	var now unix.Rlimit
	err := unix.Prlimit(pid, resource, nil, &now)
	if err == nil {
		now.Cur = min(most, now.Max)
		err = unix.Prlimit(pid, resource, &now, nil)
	}
	if errors.Is(err, unix.ESRCH) { // it has ended
		return nil
	}
	return err
}
