package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// deathPact puts the child into a process group of its own and has the kernel
// send it SIGTERM when this process dies: for plugins that do not watch their
// standard input. SIGTERM, so that it may still flush.
func deathPact() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// reap blocks until the child has ended, kills what is left of its group,
// and only then reaps it: until then its id, which is its group's, can not be
// given to another.
func (p *process) reap(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(cmd.Process.Pid)
	_ = cmd.Wait() // the state says more than the error
	p.state, p.child = cmd.ProcessState, nil
}

// watchTime is how long threads are watched for which of them works.
const watchTime = 50 * time.Millisecond

// busiest is the thread of a process that works now, of several the one that has
// worked most for a while, which is how long it blocks; 0 if none does. A Go
// program prints the stack of the goroutine that SIGQUIT interrupts, and can not
// print that of one which runs on another thread.
func busiest(pid int) int {
	before := threadsOf(pid)
	time.Sleep(watchTime)
	found, most := 0, uint64(0)
	for tid, now := range threadsOf(pid) {
		if worked := now.work - before[tid].work; now.runs && (found == 0 || worked > most) {
			found, most = tid, worked
		}
	}
	return found
}

// thread is what the kernel says of one: whether it runs or waits for a
// processor, and how long it has run, in nanoseconds.
type thread struct {
	runs bool
	work uint64
}

func threadsOf(pid int) map[int]thread {
	folder := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil // it has ended
	}
	threads := make(map[int]thread, len(entries))
	for _, entry := range entries {
		stat, err := os.ReadFile(filepath.Join(folder, entry.Name(), "stat"))
		if err != nil {
			continue // this one has
		}
		tid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// The name, in brackets, may hold anything; the state comes after it.
		t := thread{runs: bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" R "))}
		// Not there where the kernel does not count: then any that runs will do.
		if sched, err := os.ReadFile(filepath.Join(folder, entry.Name(), "schedstat")); err == nil {
			ran, _, _ := strings.Cut(string(sched), " ")
			t.work, _ = strconv.ParseUint(ran, 10, 64)
		}
		threads[tid] = t
	}
	return threads
}

// quit sends SIGQUIT to a thread of a process that is there, or to any of its
// threads if that one is not.
func quit(pid, tid int) {
	if tid == 0 || unix.Tgkill(pid, tid, unix.SIGQUIT) != nil {
		_ = unix.Kill(pid, unix.SIGQUIT) // it is there: nobody has reaped it
	}
}
