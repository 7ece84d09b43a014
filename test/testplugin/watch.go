package testplugin

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// WaitFor polls until ok returns true, because another process sends no event. It fails
// the test after a minute.
func WaitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 12000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("no sign of %s within a minute", what)
}

// Gone reports whether a process has ended, including zombies.
func Gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// Freeze stops a process and waits until all its threads have stopped.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if pid <= 0 { // 0 would freeze the group of this test
		t.Fatalf("no process to freeze: its id is %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	WaitFor(t, "a frozen process", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return err == nil && !slices.ContainsFunc(stats, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(stat, []byte(") T "))
		})
	})
}

// Log is a log that tests may read while it is written. The zero value is empty. It is
// safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns everything written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
