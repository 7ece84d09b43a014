package launch

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerSlack is the time by which a plugin's timers may be late. In a busy process, Go's
// runtime often sleeps for 20 µs. With the kernel's default slack, these sleeps use much of
// the CPU of a plugin that forwards batches.
const (
	timerSlack   = time.Millisecond
	defaultSlack = 50 * time.Microsecond
)

// inBackground calls start. Processes that start creates get the scheduling policy
// SCHED_BATCH and a large timer slack. On a busy CPU such a process does not interrupt
// the service when it wakes up, and it wakes up less often. It gets the same share of
// the CPU. inBackground changes the settings of the calling thread, which the caller
// must have locked, and restores them. If the thread has another policy or another slack
// than usual, or the kernel refuses the change, the plugin inherits the setting of the
// service.
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

// usualPolicy returns the thread's policy, and true if it is SCHED_NORMAL and no filter
// of system calls is active. For example, systemd's filter ~@resources ends a service
// that sets a policy.
func usualPolicy() (policy uintptr, ok bool) {
	if filtered, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || filtered != 0 {
		return 0, false
	}
	policy, _, fault := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	return policy, fault == 0 && policy&^unix.SCHED_RESET_ON_FORK == unix.SCHED_NORMAL
}

// setPolicy sets the policy of the thread. It returns false if that failed. It uses
// sched_setscheduler, because sched_setattr would also overwrite the nice value and the
// time slice.
func setPolicy(policy uintptr) bool {
	var priority int32 // used only by real-time policies
	_, _, fault := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, policy, uintptr(unsafe.Pointer(&priority)))
	return fault == 0
}
