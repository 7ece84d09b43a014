//go:build unix && !linux

package launch

import (
	"os"
	"syscall"
)

// maxRSS is the most memory a process had resident, in bytes, as macOS counts
// it.
func maxRSS(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int64(usage.Maxrss)
	}
	return 0
}

// oomCounter knows nothing here.
type oomCounter struct{}

func newOOMCounter(int) oomCounter { return oomCounter{} }

func (oomCounter) since() oomKills { return oomUnknown }

// widen does nothing: pipes grow by themselves here.
func widen(*os.File, int) {}
