package measure

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestClocksAgree compares the clock of this process by its id with the clock that
// the process reads of itself.
func TestClocksAgree(t *testing.T) {
	before := SelfCPU()
	for SelfCPU()-before < 5*time.Millisecond { // work, not sleep
	}
	byID, err := ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after := SelfCPU(); byID < before+5*time.Millisecond || byID > after {
		t.Errorf("by its id %v, want between %v and %v", byID, before+5*time.Millisecond, after)
	}
	if _, err := ProcessCPU(1 << 22); err == nil { // the kernel gives no id as large
		t.Error("a process that does not exist has a clock")
	}
}

func TestReadHeap(t *testing.T) {
	before := ReadHeap()
	keep = make([]byte, 10<<20) // large enough to be counted at once
	if got := ReadHeap().Sub(before); got.Bytes < 10<<20 || got.Objects == 0 {
		t.Errorf("10 MiB were allocated, and %+v counted", got)
	}
}

var keep []byte

func TestThisMachine(t *testing.T) {
	if m := ThisMachine(); m.CPUs == 0 || m.Memory == 0 || m.Kernel == "" || m.Go == "" {
		t.Errorf("%+v", m)
	}
	if busy, err := BusyCPU(); busy <= 0 || err != nil {
		t.Errorf("busy for %v, %v", busy, err)
	}
	if s, err := Memory(os.Getpid()); err != nil || s.VmHWM < s.VmRSS || s.VmRSS < 1<<20 {
		t.Errorf("memory %+v, %v", s, err)
	}
	if !slices.Contains(Children(os.Getppid()), os.Getpid()) {
		t.Error("the parent of this process does not have it as a child")
	}
}
