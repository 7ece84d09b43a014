//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"
)

// DeathPact returns attributes for a child that leads a process group. This system sends no
// signal to the child when this process dies, so the child must watch its standard input.
func DeathPact() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reap blocks until the child has ended, reaps it, and kills the other processes of its
// group. This system cannot wait for a child without reaping it, so another process may
// already have the id of the group.
func (c *Child) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state has more details than the error
	c.mu.Lock()
	defer c.mu.Unlock()
	killGroup(cmd.Process.Pid)
	c.life.state, c.process = cmd.ProcessState, nil
}

// mountedNoexec returns false, because it does not look up the flag on this system.
func mountedNoexec(string) bool { return false }
