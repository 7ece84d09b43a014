package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// limitMemory leaves the process a little more address space than it has.
func limitMemory(pid int) error {
	size, err := statusBytes(pid, "VmSize")
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	const room = 1 << 20
	return limit(pid, unix.RLIMIT_AS, uint64(size)+room)
}

// limitFiles lets the process open no further file.
func limitFiles(pid int) error { return limit(pid, unix.RLIMIT_NOFILE, 3) }

// unlimit takes both limits back.
func unlimit(pid int) error {
	const all = ^uint64(0)
	return errors.Join(limit(pid, unix.RLIMIT_AS, all), limit(pid, unix.RLIMIT_NOFILE, all))
}

// limit sets the soft limit, as far as the hard one goes, so that it can be
// taken back without privileges.
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
