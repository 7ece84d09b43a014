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

// quit sends SIGQUIT to a process: to the thread of it that has run for longest
// and runs now, if any does. A Go program prints the stack of the goroutine that
// the signal interrupts, and can not print that of one which runs on another
// thread.
func quit(pid int) {
	if tid := busiest(pid); tid == 0 || unix.Tgkill(pid, tid, unix.SIGQUIT) != nil {
		_ = unix.Kill(pid, unix.SIGQUIT) // it is there: nobody has reaped it
	}
}

// busiest is the thread that quit looks for; 0 for none.
func busiest(pid int) int {
	folder := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(folder)
	if err != nil {
		return 0
	}
	found, most := 0, uint64(0)
	for _, thread := range threads {
		stat, err := os.ReadFile(filepath.Join(folder, thread.Name(), "stat"))
		if err != nil {
			continue
		}
		// The name, in brackets, may hold anything; then come the third field,
		// the state, and as 14th and 15th the ticks spent in user and kernel mode.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 13 || fields[0] != "R" {
			continue
		}
		user, _ := strconv.ParseUint(fields[11], 10, 64)
		system, _ := strconv.ParseUint(fields[12], 10, 64)
		if tid, err := strconv.Atoi(thread.Name()); err == nil && (found == 0 || user+system > most) {
			found, most = tid, user+system
		}
	}
	return found
}
