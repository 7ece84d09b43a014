package measure

import (
	"os"
	"strings"
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

func TestHeapAllocs(t *testing.T) {
	objects, bytes := HeapAllocs()
	keep = make([]byte, 10<<20) // large enough to be counted at once
	if o, b := HeapAllocs(); b-bytes < 10<<20 || o == objects {
		t.Errorf("10 MiB were allocated, and %v counted, in %v objects", b-bytes, o-objects)
	}
}

var keep []byte

func TestMachine(t *testing.T) {
	if m := Machine(); strings.Contains(m, "unknown") || strings.Contains(m, " 0 MiB") {
		t.Error(m)
	}
	if busy, err := BusyCPU(); busy <= 0 || err != nil {
		t.Errorf("busy for %v, %v", busy, err)
	}
	if s, err := Memory(os.Getpid()); err != nil || s.VmHWM < s.VmRSS || s.VmRSS < 1<<20 {
		t.Errorf("memory %+v, %v", s, err)
	}
	if before, after := SelfCPU(), ChildrenCPU(os.Getppid()); after < before {
		t.Errorf("the children of this process's parent used %v, and this process %v", after, before)
	}
}
