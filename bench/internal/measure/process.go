package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/metrics"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU is the user and system time that a process has used so far, with
// all its threads, those that have ended included, but not its children.
func ProcessCPU(pid int) (time.Duration, error) {
	// The kernel's encoding of "the CPU clock of process pid", by which
	// clock_getcpuclockid(3) works: the complement of the id above three bits,
	// of which CPUCLOCK_SCHED is 2.
	const cpuClockSched = 2
	clock := int32(^pid<<3 | cpuClockSched)
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// SelfCPU is ProcessCPU of this process.
func SelfCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // cannot fail for a clock that exists
	return time.Duration(ts.Nano())
}

// EndedChildrenCPU is the user and system time of all children of this process
// that have ended and were waited for, and of theirs.
func EndedChildrenCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u) // cannot fail with valid arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// PeakRSS is the most memory that a living process has had resident, in bytes.
func PeakRSS(pid int) (int64, error) { return statusBytes(pid, "VmHWM:") }

// RSS is the memory that a living process has resident now, in bytes.
func RSS(pid int) (int64, error) { return statusBytes(pid, "VmRSS:") }

// AnonymousRSS is the part of RSS that is no file: heap and stacks, in bytes.
func AnonymousRSS(pid int) (int64, error) { return statusBytes(pid, "RssAnon:") }

func statusBytes(pid int, field string) (int64, error) {
	value, err := statusField(fmt.Sprintf("/proc/%d/status", pid), field)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseInt(value, 10, 64)
	return kib << 10, err
}

// statusField gives the first word behind a field's name.
func statusField(path, field string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if rest, ok := bytes.CutPrefix(lines.Bytes(), []byte(field)); ok {
			if words := bytes.Fields(rest); len(words) > 0 {
				return string(words[0]), nil
			}
		}
	}
	return "", fmt.Errorf("%s has no %s", path, field)
}

// Heap is what this process has allocated since its start.
type Heap struct{ Objects, Bytes uint64 }

// ReadHeap does not stop the world. What goroutines have allocated from their
// processor's cache and not yet reported is missing: some kilobytes.
func ReadHeap() Heap {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return Heap{Objects: samples[0].Value.Uint64(), Bytes: samples[1].Value.Uint64()}
}

// Sub is h less what it was before.
func (h Heap) Sub(before Heap) Heap {
	return Heap{Objects: h.Objects - before.Objects, Bytes: h.Bytes - before.Bytes}
}
