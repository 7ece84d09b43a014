package launch

import (
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
const watchTime = 100 * time.Millisecond

// busiest is the thread of a process that has worked most for a while, which is
// how long it blocks; 0 if none has. A Go program prints the stack of the
// goroutine that SIGQUIT interrupts, and can not print that of one which runs on
// another thread.
func busiest(pid int) int {
	before := workOf(pid)
	time.Sleep(watchTime)
	found, most := 0, uint64(0)
	for tid, now := range workOf(pid) {
		if worked := now - before[tid]; worked > most {
			found, most = tid, worked
		}
	}
	return found
}

// workOf says how long each thread of a process has run, in nanoseconds.
func workOf(pid int) map[int]uint64 {
	folder := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(folder)
	if err != nil {
		return nil // it has ended
	}
	work := make(map[int]uint64, len(threads))
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(folder, thread.Name(), "schedstat"))
		if err != nil {
			continue // this one has, or the kernel does not count
		}
		ran, _, _ := strings.Cut(string(text), " ")
		n, errRan := strconv.ParseUint(ran, 10, 64)
		if tid, err := strconv.Atoi(thread.Name()); err == nil && errRan == nil {
			work[tid] = n
		}
	}
	return work
}

// quit sends SIGQUIT to a thread of a process that is there, or to any of its
// threads if that one is not.
func quit(pid, tid int) {
	if tid == 0 || unix.Tgkill(pid, tid, unix.SIGQUIT) != nil {
		_ = unix.Kill(pid, unix.SIGQUIT) // it is there: nobody has reaped it
	}
}
