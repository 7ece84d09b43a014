package launch

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerSlack is the time by which a plugin's timers may be late, and defaultSlack is the
// kernel's default. In a busy process, Go's runtime often sleeps for 20 µs. With the default,
// these short sleeps use much of the CPU of a plugin that forwards batches.
const (
	timerSlack   = time.Millisecond
	defaultSlack = 50 * time.Microsecond
)

// inBackground calls start. Processes that start creates get the scheduling policy
// SCHED_BATCH and a large timer slack. On a busy CPU such a process does not interrupt
// the service when it wakes up, and it wakes up less often. It gets the same share of
// the CPU. inBackground changes these settings on the calling thread, which the caller must
// have locked, and restores them after start. It leaves a setting that differs from the
// kernel's default, because the operator of the service has chosen it.
func inBackground(start func() error) error {
	if policy, ok := usualPolicy(); ok && setPolicy(policy|unix.SCHED_BATCH) {
		defer setPolicy(policy) // a thread may always return to its old policy
	}
	if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && slack == int(defaultSlack) {
		if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) == nil {
			defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) }()
		}
	}
	return start()
}

// usualPolicy returns the thread's scheduling policy. It reports true if the policy is
// SCHED_NORMAL and no filter of system calls is active. Under such a filter, an attempt to
// set the policy may end the service, as systemd's filter ~@resources does.
func usualPolicy() (policy uintptr, ok bool) {
	if filtered, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || filtered != 0 {
		return 0, false
	}
	policy, _, fault := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	return policy, fault == 0 && policy&^unix.SCHED_RESET_ON_FORK == unix.SCHED_NORMAL
}

// setPolicy sets the scheduling policy of the thread, and reports whether that succeeded. It
// uses sched_setscheduler, because sched_setattr would also overwrite the nice value and the
// time slice.
func setPolicy(policy uintptr) bool {
	var priority int32 // used only by real-time policies
	_, _, fault := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, policy, uintptr(unsafe.Pointer(&priority)))
	return fault == 0
}
