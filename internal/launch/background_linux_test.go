package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// policiesOf returns the scheduling policy of each thread of a process, from /proc.
func policiesOf(t *testing.T, pid int) map[string]int {
	t.Helper()
	// A thread may end between the two.
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	policies := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// Field 41 of proc_pid_stat(5); the second ends with the last parenthesis.
		rest := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		var policy int
		if _, err := fmt.Sscan(rest[41-3], &policy); err != nil {
			t.Fatal(err)
		}
		policies[file] = policy
	}
	if len(policies) == 0 {
		t.Fatalf("process %d has no threads", pid)
	}
	return policies
}

// onThread calls f on a thread of its own, which ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		f()
	}()
	<-done
}

// scheduling returns the scheduling attributes and the timer slack of the calling thread.
func scheduling(t *testing.T) (attr unix.SchedAttr, slack int) {
	t.Helper()
	got, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Errorf("the thread's policy: %v", err)
		return attr, 0
	}
	if slack, err = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil {
		t.Errorf("the thread's slack: %v", err)
	}
	return *got, slack
}

// mayChoosePolicy skips a test where threads are not scheduled as most are, or may
// not have another policy.
func mayChoosePolicy(t *testing.T) {
	t.Helper()
	var reason string
	onThread(func() {
		policy, usual := usualPolicy()
		_, noAttr := unix.SchedGetAttr(0, 0)
		slack, noSlack := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		switch {
		case !usual:
			reason = "threads have another policy than most, or there is a filter"
		case noAttr != nil || noSlack != nil:
			reason = fmt.Sprint("the kernel does not tell: ", noAttr, noSlack)
		case slack != int(defaultSlack):
			reason = fmt.Sprintf("threads have a slack of %d ns", slack)
		case !setPolicy(policy | unix.SCHED_BATCH):
			reason = "no other policy is allowed"
		}
	})
	if reason != "" {
		t.Skip(reason)
	}
}

func TestPluginRunsInBackgroundAndHostDoesNot(t *testing.T) {
	mayChoosePolicy(t)
	before := policiesOf(t, os.Getpid())
	cmd, _ := command(t, "record")
	p := start(t, cmd)
	for thread, policy := range policiesOf(t, p.PID()) {
		if policy != unix.SCHED_BATCH {
			t.Errorf("%s of the plugin has policy %d, want %d", thread, policy, unix.SCHED_BATCH)
		}
	}
	for thread, policy := range policiesOf(t, os.Getpid()) {
		if was, known := before[thread]; known && policy != was || !known && policy != unix.SCHED_NORMAL {
			t.Errorf("%s of the host has policy %d", thread, policy)
		}
	}
	// Reading it needs the right to trace the process, and a kernel that has it.
	slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", p.PID()))
	if want := fmt.Sprintln(timerSlack.Nanoseconds()); err == nil && string(slack) != want {
		t.Errorf("timers of the plugin may be %s ns late, want %s", slack, want)
	}
}

func TestOperatorsPolicyStays(t *testing.T) {
	mayChoosePolicy(t)
	onThread(func() {
		if !setPolicy(unix.SCHED_IDLE) {
			t.Error("the thread may not have SCHED_IDLE")
			return
		}
		for _, own := range []time.Duration{2 * timerSlack, time.Microsecond} {
			if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0); err != nil {
				t.Errorf("set the thread's slack: %v", err)
				return
			}
			_ = inBackground(func() error {
				if during, slack := scheduling(t); during.Policy != unix.SCHED_IDLE || slack != int(own) {
					t.Errorf("policy %d and slack %d, want the thread's policy and %d", during.Policy, slack, own)
				}
				return nil
			})
		}
	})
}

// TestFilteredPolicyStays: a filter may end the service for a system call that it
// forbids.
func TestFilteredPolicyStays(t *testing.T) {
	mayChoosePolicy(t)
	onThread(func() {
		allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
		program := unix.SockFprog{Len: 1, Filter: &allow}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		if err != nil {
			t.Logf("no filter here: %v", err)
			return
		}
		_ = inBackground(func() error {
			if during, _ := scheduling(t); during.Policy != unix.SCHED_NORMAL {
				t.Errorf("policy %d under a filter, want that of the thread", during.Policy)
			}
			return nil
		})
	})
}

func TestThreadIsAsBefore(t *testing.T) {
	mayChoosePolicy(t)
	for name, start := range map[string]func() error{
		"started": func() error { return nil },
		"failed":  func() error { return os.ErrNotExist },
		"panic":   func() error { panic("of the start") },
	} {
		onThread(func() {
			own, _ := scheduling(t)
			own.Nice++
			own.Runtime = uint64(7 * time.Millisecond) // a slice of its own, where the kernel knows them
			if err := unix.SchedSetAttr(0, &own, 0); err != nil {
				t.Logf("%s: no slice and nice of its own: %v", name, err)
			}
			before, slack := scheduling(t)
			func() {
				defer func() { _ = recover() }()
				_ = inBackground(start)
			}()
			if after, slackAfter := scheduling(t); after != before || slackAfter != slack {
				t.Errorf("%s: the thread is %v with slack %d, and was %v with %d", name, after, slackAfter, before, slack)
			}
		})
	}
}
