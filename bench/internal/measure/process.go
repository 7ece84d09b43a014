// Package measure reads CPU time, memory and allocations of processes, and computes
// summaries of repeated figures.
//
// The CPU time of one process comes from the kernel's clock of that process, with
// a resolution of nanoseconds. /proc/stat, with a resolution of 10 ms, only
// serves to detect other users of the machine.
package measure

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ProcessCPU returns the user and system time of all threads of a process so far,
// without its children.
func ProcessCPU(pid int) (time.Duration, error) {
	// The clock's id as clock_getcpuclockid(3) computes it: the complement of the
	// process id, above three bits, which are CPUCLOCK_SCHED.
	const cpuClockSched = 2
	clock := int32(^pid<<3 | cpuClockSched)
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// SelfCPU returns ProcessCPU of this process.
func SelfCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // cannot fail for a clock that exists
	return time.Duration(ts.Nano())
}

// EndedChildrenCPU returns the user and system time of all children of this
// process that have ended and were waited for, and of their children.
func EndedChildrenCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u) // cannot fail with valid arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Children returns the child processes of a process.
func Children(pid int) []int {
	var children []int
	all, _ := procfs.AllProcs() // without /proc the clocks do not work either
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == pid { // otherwise it has ended
			children = append(children, p.PID)
		}
	}
	return children
}

// Memory returns the status of a living process, in bytes: VmHWM is its peak RSS, and
// VmRSS its RSS.
func Memory(pid int) (procfs.ProcStatus, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStatus{}, err
	}
	return p.NewStatus()
}

// Heap has the allocations of this process since its start.
type Heap struct{ Objects, Bytes uint64 }

// ReadHeap does not stop the world. A few kilobytes are missing, which goroutines
// have allocated from their processor's cache and not reported yet.
func ReadHeap() Heap {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return Heap{Objects: samples[0].Value.Uint64(), Bytes: samples[1].Value.Uint64()}
}

// Sub returns h minus an earlier reading.
func (h Heap) Sub(before Heap) Heap {
	return Heap{Objects: h.Objects - before.Objects, Bytes: h.Bytes - before.Bytes}
}

// LiveHeap allocates 64 MiB in blocks without pointers. A process keeps them alive
// so that its garbage collector runs as often as in a real service.
func LiveHeap() [][]byte {
	blocks := make([][]byte, 64)
	for i := range blocks {
		blocks[i] = make([]byte, 1<<20)
	}
	return blocks
}

// BusyCPU returns the busy time of all processors since the machine started. It
// includes the time that the hypervisor gave to other machines (steal).
func BusyCPU() (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.Stat()
	c := stat.CPUTotal
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)), err
}

// Machine describes the machine of a measurement.
type Machine struct {
	CPUs              int
	Memory            int64 // in bytes
	Model, Kernel, Go string
}

// ThisMachine describes this machine.
func ThisMachine() Machine {
	const unknown = "unknown"
	m := Machine{CPUs: runtime.NumCPU(), Model: unknown, Kernel: unknown, Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.Model = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.Memory = int64(*memory.MemTotalBytes) //nolint:gosec // no machine has as much
	}
	if release, err := fs.SysctlStrings("kernel.osrelease"); err == nil {
		m.Kernel = "Linux " + release[0]
	}
	return m
}
