//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"
)

// DeathPact returns attributes for a process group of its own. This system has no
// Pdeathsig: a program must watch its standard input.
func DeathPact() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reap blocks until the child has ended, reaps it, and kills the rest of its group. This
// system cannot wait for a child without reaping it, so another process may already have
// the id.
func (c *Child) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state has more details than the error
	c.mu.Lock()
	defer c.mu.Unlock()
	killGroup(cmd.Process.Pid)
	c.life.state, c.process = cmd.ProcessState, nil
}

// mountedNoexec returns false, because the flag is not looked up on this system.
func mountedNoexec(string) bool { return false }
