package launch

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// DeathPact returns attributes for a process group of its own. The kernel sends the child
// SIGTERM when this process dies, for programs that do not watch their standard input. After
// SIGTERM a program can still flush. The kernel sends it also when the thread that has
// started the child ends (golang.org/issue/27505), so the caller must lock the thread.
func DeathPact() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// reap blocks until the child has ended, kills the rest of its group, and then reaps the
// child. Until the child is reaped, no other process can get its id, which is also the id
// of the group.
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
	_ = cmd.Wait() // the state has more details than the error
	c.life.state, c.process = cmd.ProcessState, nil
}

// mountedNoexec reports whether path's file system is mounted noexec.
func mountedNoexec(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && stat.Flags&unix.ST_NOEXEC != 0
}
