// Package measure reads CPU time, memory and allocations of processes, and computes
// summaries of repeated figures.
//
// The CPU time of one process comes from the kernel's clock of that process, with
// a resolution of nanoseconds. /proc/stat, with a resolution of 10 ms, only
// serves to detect other users of the machine.
package measure

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
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

// ChildrenCPU returns the sum of ProcessCPU of the living child processes of a process.
func ChildrenCPU(pid int) (sum time.Duration) {
	all, _ := procfs.AllProcs() // without /proc the clocks do not work either
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == pid {
			cpu, _ := ProcessCPU(p.PID) // zero if it has just ended
			sum += cpu
		}
	}
	return sum
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

// HeapAllocs returns the allocations of this process since its start. It does not stop
// the world. A few kilobytes are missing, which goroutines have allocated from their
// processor's cache and not reported yet.
func HeapAllocs() (objects, bytes float64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return float64(samples[0].Value.Uint64()), float64(samples[1].Value.Uint64())
}

var liveHeap [64][]byte

// KeepLiveHeap allocates 64 MiB in blocks without pointers, which stay alive, so that the
// garbage collector runs as often as in a real service.
func KeepLiveHeap() {
	for i := range liveHeap {
		liveHeap[i] = make([]byte, 1<<20)
	}
}

// UseHeap writes to each page of 64 MiB, and leaves them to the garbage collector. A
// service that runs for a while has used its heap. Without UseHeap, the figures include
// the kernel's work for the first use of each page.
func UseHeap() {
	page := os.Getpagesize()
	for range 64 {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += page {
			block[i] = 1
		}
	}
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

// Machine describes this machine.
func Machine() string {
	model, memory, kernel := "unknown", uint64(0), "unknown"
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			model = cpus[0].ModelName
		}
		if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil {
			memory = *m.MemTotalBytes
		}
		if release, err := fs.SysctlStrings("kernel.osrelease"); err == nil {
			kernel = release[0]
		}
	}
	return fmt.Sprintf("%d processors (%s), %d MiB, Linux %s, %s", runtime.NumCPU(), model, memory>>20, kernel, runtime.Version())
}

// Summary is the summary of the repeats of a figure.
type Summary struct {
	// Middle is the mean of the middle half of the repeats. Like the median, it does
	// not move with one bad repeat, and it varies less. Of four repeats and fewer it is
	// the median.
	Middle   float64
	Min, Max float64
	N        int
}

// Summarize returns the summary of values, in any order. Without values it is zero. It
// does not change values.
//
//nolint:misspell // the word is the function's name
func Summarize(values []float64) Summary {
	n := len(values)
	if n == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	ends := (n + 1) / 4
	if n <= 4 {
		ends = (n - 1) / 2
	}
	sum := 0.0
	for _, v := range sorted[ends : n-ends] {
		sum += v
	}
	return Summary{Middle: sum / float64(n-2*ends), Min: sorted[0], Max: sorted[n-1], N: n}
}
