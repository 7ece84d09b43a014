package launch

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// DeathPact returns attributes for a child that leads a process group, and that gets SIGTERM
// from the kernel when this process dies. The signal is for programs that do not notice the
// end of their standard input, and still lets them flush. The kernel also sends it when the
// thread that started the child ends (golang.org/issue/27505). So the caller must lock its
// goroutine to this thread until the child has ended.
func DeathPact() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// reap blocks until the child has ended, kills the other processes of its group, and then
// reaps the child. Before that, no other process can get the child's id, which is also the
// id of the group.
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
