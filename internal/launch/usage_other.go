//go:build unix && !linux

package launch

import (
	"os"
	"syscall"
)

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
