//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"
)

// deathPact puts the child into a process group of its own. There is no
// Pdeathsig here: a plugin must watch its standard input.
func deathPact() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reap blocks until the child has ended and kills what is left of its
// group. A wait without reaping is not possible here, so there is a moment
// in which another process may have the id.
func (c *Child) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state says more than the error
	c.mu.Lock()
	defer c.mu.Unlock()
	killGroup(cmd.Process.Pid)
	c.life.state, c.process = cmd.ProcessState, nil
}

// mountedNoexec reports false: the flag is not looked up here.
func mountedNoexec(string) bool { return false }
