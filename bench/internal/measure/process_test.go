package measure

import (
	"os"
	"testing"
	"time"
)

func TestParseBusy(t *testing.T) {
	const stat = "cpu  100 20 30 9999 888 4 5 6 77 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	got, err := parseBusy([]byte(stat))
	// User, nice, system, irq, softirq and steal; guests are in user already.
	if want := (100 + 20 + 30 + 4 + 5 + 6) * tick; got != want || err != nil {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 x 4 5 6 7 8 9"} {
		if got, err := parseBusy([]byte(bad)); err == nil {
			t.Errorf("parseBusy(%q) = %v, want an error", bad, got)
		}
	}
}

// TestClocksAgree: the clock of this process by its id is that which it reads of
// itself, and neither stands still.
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
		t.Error("a process that there is not has a clock")
	}
}

func TestMemoryOfThisProcess(t *testing.T) {
	peak, err1 := PeakRSS(os.Getpid())
	now, err2 := RSS(os.Getpid())
	if err1 != nil || err2 != nil || now < 1<<20 || peak < 1<<20 {
		t.Errorf("peak %d (%v), now %d (%v)", peak, err1, now, err2)
	}
}

func TestReadHeap(t *testing.T) {
	before := ReadHeap()
	keep = make([]byte, 10<<20) // large enough to be counted at once
	got := ReadHeap().Sub(before)
	if got.Bytes < 10<<20 || got.Objects == 0 {
		t.Errorf("10 MiB were allocated, and %+v counted", got)
	}
}

var keep []byte

func TestThisMachine(t *testing.T) {
	if m := ThisMachine(); m.CPUs == 0 || m.Memory == 0 || m.Kernel == "" || m.Go == "" {
		t.Errorf("%+v", m)
	}
	if got := Busiest(3, time.Millisecond, func(int) bool { return true }); len(got) != 0 {
		t.Errorf("all processes are ours, and yet %v are others'", got)
	}
}
