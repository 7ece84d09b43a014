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
// group. Waiting without reaping is not to be had here, so there is a moment
// in which the id may already be another's.
func (p *process) reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state says more than the error
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(cmd.Process.Pid)
	p.state, p.child = cmd.ProcessState, nil
}

// mountedNoexec reports false: the flag is not looked up here.
func mountedNoexec(string) bool { return false }
