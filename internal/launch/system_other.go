//go:build unix && !linux

package launch

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// inBackground calls start. Only Linux has a policy for background processes.
func inBackground(start func() error) error { return start() }

// newMemory returns an error, because only Linux has memory that can be sealed and executed.
// So a pinned plugin runs from a file in its private folder. Other processes of this user
// can change this file.
func newMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// seal is never called, because newMemory returns no memory.
func seal(*os.File) error { return errors.ErrUnsupported }

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

// maxRSS returns the highest resident memory of a process, in bytes, as macOS counts it.
func maxRSS(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int64(usage.Maxrss)
	}
	return 0
}

// oomCounter is empty, because this system has no such count.
type oomCounter struct{}

func newOOMCounter(int) oomCounter { return oomCounter{} }

func (oomCounter) since() oomKills { return oomUnknown }

// widen does nothing, because pipes grow by themselves on this system.
func widen(*os.File, int) {}
