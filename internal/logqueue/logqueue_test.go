package logqueue

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a writer with a reader that reads only while it is open.
type gate struct {
	open chan struct{} // closed: the reader reads

	mu    sync.Mutex
	text  bytes.Buffer
	fault error
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fault != nil && len(p) > 0 {
		return 0, g.fault
	}
	return g.text.Write(p)
}

func (g *gate) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

func (g *gate) fail(fault error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = fault
}

func dropped(n uint64) []byte { return fmt.Appendf(nil, "dropped %d\n", n) }

// putLines writes numbered lines of a kilobyte, which all must be taken at once.
func putLines(t *testing.T, q *Queue, from, to int) {
	t.Helper()
	began := time.Now()
	for i := from; i < to; i++ {
		line := fmt.Appendf(nil, "%06d%s\n", i, strings.Repeat(".", 1017))
		if n, err := q.Write(line); n != len(line) || err != nil {
			t.Fatalf("Write gives %d, %v", n, err)
		}
	}
	if took := time.Since(began); took > 0 { // the clock is the bubble's: it stands unless a goroutine waits
		t.Errorf("Write has waited for %v", took)
	}
}

// numbers returns the numbers of the lines, in order, with all other lines.
func numbers(text string) (all []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), ".")
		all = append(all, line)
	}
	return all
}

// A reader that reads nothing delays no caller. Lines beyond the queue are counted and
// reported in their place, and all other lines come in order.
func TestLogQueueDropsAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = maxBytes / 1024
		g := newGate()
		q := New(g, dropped)
		putLines(t, q, 0, 1)
		synctest.Wait() // the goroutine has it, and waits for the reader
		putLines(t, q, 1, room+3)
		if n := q.Lost(); n != 2 {
			t.Errorf("%d lines are dropped, want 2", n)
		}
		if n, _ := q.Write([]byte("short\n")); n != 6 || q.Lost() != 3 {
			t.Errorf("a shorter line slipped in: %d bytes taken, %d lines dropped", n, q.Lost())
		}
		close(g.open)
		synctest.Wait()
		putLines(t, q, room+3, room+4)
		q.Close()
		var want []string
		for i := range room + 1 {
			want = append(want, fmt.Sprintf("%06d", i))
		}
		want = append(want, "dropped 3", fmt.Sprintf("%06d", room+3))
		if got := numbers(g.String()); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%d lines, of which the last are %q; want %d and %q", len(got), got[max(0, len(got)-4):], len(want), want[len(want)-4:])
		}
		if _, err := q.Write([]byte("after\n")); err != nil || !strings.HasSuffix(g.String(), "after\n") {
			t.Errorf("a line after the end is lost: %v", err)
		}
	})
}

// The end writes the waiting lines, for a limited time.
func TestLogQueueCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		q := New(g, dropped)
		putLines(t, q, 0, 10)
		began := time.Now()
		q.Close()
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("with a reader that reads nothing it took %v, want %v", took, closeTimeout)
		}
		putLines(t, q, 10, 20)
		close(g.open)
		<-q.done
		if got := numbers(g.String()); len(got) != 20 {
			t.Errorf("the log has %d lines, want 20", len(got))
		}
	})
}

// Lines that cannot be written are dropped. The log reports them after the next
// successful write, and the end does not wait for it.
func TestLogQueueWhoseWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		close(g.open)
		q := New(g, dropped)
		g.fail(errors.New("disk is full"))
		putLines(t, q, 0, 3)
		synctest.Wait()
		g.fail(nil)
		putLines(t, q, 3, 4) // the notice comes first
		synctest.Wait()
		putLines(t, q, 4, 5)
		synctest.Wait()
		if got := strings.Join(numbers(g.String()), " "); got != "dropped 4 000004" {
			t.Errorf("the log has %q", got)
		}
		g.fail(errors.New("disk is full"))
		putLines(t, q, 5, 6)
		q.Close()
		if n := q.Lost(); n != 5 {
			t.Errorf("%d lines are dropped, want 5", n)
		}
	})
}

// A line that may be the program's last is waited for, if that does not take long. After
// one wait in vain, there is no other for a minute.
func TestLogQueueSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(waitWritten func()) time.Duration {
			began := time.Now()
			waitWritten()
			return time.Since(began)
		}
		g := newGate()
		q := New(g, dropped)
		putLines(t, q, 0, 1)
		if took := waits(q.WaitWrittenSeldom); took != seldomTimeout {
			t.Errorf("the first wait took %v, want %v", took, seldomTimeout)
		}
		putLines(t, q, 1, 2)
		if took := waits(q.WaitWrittenSeldom); took != 0 {
			t.Errorf("the second wait took %v, want none", took)
		}
		time.AfterFunc(time.Millisecond, func() { close(g.open) })
		if !q.WaitWritten(time.Second) || len(numbers(g.String())) != 2 {
			t.Errorf("WaitWritten did not wait for the lines: %q", g)
		}
		putLines(t, q, 2, 3)
		if !q.WaitWritten(time.Second) || len(numbers(g.String())) != 3 {
			t.Errorf("WaitWritten did not wait for the line: %q", g)
		}
		q.Close()
	})
}
