package launch

import (
	"errors"
	"os/exec"
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
// and only then reaps it: until then its id, which is its group's, cannot be
// given to another.
func (c *Child) reap(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	killGroup(cmd.Process.Pid)
	_ = cmd.Wait() // the state says more than the error
	c.life.state, c.process = cmd.ProcessState, nil
}

// mountedNoexec reports whether the kernel executes nothing on the file system of
// path.
func mountedNoexec(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && stat.Flags&unix.ST_NOEXEC != 0
}
