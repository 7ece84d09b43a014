package measure

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestMachine(t *testing.T) {
	before, _ := HeapAllocs()
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
	block := make([]byte, 10<<20) // large enough to be counted at once
	if objects, bytes := HeapAllocs(); objects <= before || bytes < float64(len(block)) {
		t.Errorf("%v bytes in %v objects were allocated, after %v objects", bytes, objects, before)
	}
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Summary
	}{
		{nil, Summary{}},
		{[]float64{3}, Summary{3, 3, 3, 1}},
		{[]float64{5, 1}, Summary{3, 1, 5, 2}},
		{[]float64{9, 1, 4}, Summary{4, 1, 9, 3}},
		{[]float64{1, 100, 2, 3}, Summary{2.5, 1, 100, 4}},
		{[]float64{500, 2, 3, 7, -50}, Summary{4, -50, 500, 5}},
		{[]float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1000}, Summary{6.5, 2, 1000, 10}},
	} {
		given := slices.Clone(c.values)
		if diff := cmp.Diff(c.want, Summarize(given)); diff != "" {
			t.Errorf("%v (-want +got)\n%s", c.values, diff)
		}
		if !slices.Equal(given, c.values) {
			t.Errorf("%v was changed to %v", c.values, given)
		}
	}
}
