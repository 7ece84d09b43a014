package spool

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// envFullDisk has the folder, for the program of TestDiskThatIsFull.
const envFullDisk = "SERVETRACE_TEST_FULL_SPOOL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envFullDisk); dir != "" {
		fillDisk(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// TestDiskThatIsFull has a process of its own write where the kernel gives it no room: the
// failure is counted and logged once, the batches before and after it are read, and no
// part of a batch stays.
func TestDiskThatIsFull(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envFullDisk+"="+dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v, output %s", err, out)
	}
	want := `5 stored, failing false
5 stored, failing true
6 stored, failing false
2 lines in the log
`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	p := start(t, dir, "two")
	if got := p.adopted(); len(got) != 6 || strings.Contains(p.log.String(), "cannot be read") {
		t.Errorf("%d batches, log:\n%s", len(got), p.log)
	}
}

// fillDisk is that process. It ends without Close.
func fillDisk(dir string) {
	ossignal.Ignore(syscall.SIGXFSZ) // the write fails instead
	var room syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &room); err != nil {
		os.Exit(1)
	}
	var log strings.Builder
	s, stored := New(dir, "one", 64<<20, slog.New(slog.NewTextHandler(&log, nil))), 0
	put := func(n int, most uint64) {
		limit := room
		limit.Cur = most
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			os.Exit(1)
		}
		for range n {
			if s.Append(batchOf(uint64(stored)), []byte(strings.Repeat("x", 30_000))) != nil {
				stored++
			}
		}
		s.Work()
		s.mu.Lock()
		s.health.tried = time.Time{} // the next write is tried at once
		s.mu.Unlock()
		fmt.Printf("%d stored, failing %v\n", stored, s.Stats().Failing)
	}
	put(5, room.Max)
	put(3, 20_000)
	put(1, room.Max)
	fmt.Println(strings.Count(log.String(), "the spool can"), "lines in the log")
}
