package launch

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerSlack is by how much a plugin's sleeps and timers may be late. Go's
// runtime looks after a process that does anything every 20 µs by such a sleep;
// with the kernel's default, 50 µs, that was a sixth of the CPU of a plugin that
// passes batches on.
const timerSlack = time.Millisecond

// inBackground calls start, whose children begin as processes that nobody waits
// for: on a busy processor one that wakes up takes its turn, as large as any
// other's, instead of interrupting the service, and its timers are not exact.
// What it has to read is more by then, so that it wakes up less often. Only the
// calling thread is changed, and is as it was when start returns; the caller has
// locked it. Where an operator has chosen a policy or a slack for the service, a
// plugin has the same; so it has where the kernel allows no change.
func inBackground(start func() error) error {
	if policy, ok := usualPolicy(); ok && setPolicy(policy|unix.SCHED_BATCH) {
		defer setPolicy(policy) // as is always allowed
	}
	if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && slack > 0 && slack < int(timerSlack) {
		if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) == nil {
			defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) }()
		}
	}
	return start()
}

// usualPolicy gives the thread's policy if that is the one of most, SCHED_NORMAL,
// and no filter of system calls is in force: systemd's ~@resources ends a service
// that asks for another.
func usualPolicy() (policy uintptr, ok bool) {
	if filtered, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || filtered != 0 {
		return 0, false
	}
	policy, _, fault := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	return policy, fault == 0 && policy&^unix.SCHED_RESET_ON_FORK == unix.SCHED_NORMAL
}

// setPolicy sets the policy of the thread, and tells whether it did. The call that
// takes all of sched_attr would set nice and slice too, which may be others by
// then and cannot all be read.
func setPolicy(policy uintptr) bool {
	var priority int32 // there is one with real-time policies only
	_, _, fault := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, policy, uintptr(unsafe.Pointer(&priority)))
	return fault == 0
}
