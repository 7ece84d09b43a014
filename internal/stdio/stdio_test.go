package stdio

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func openPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// Lines of any length stay whole where several parts of a program write to the same
// pipe, and in order for each of them, however slowly it is read.
func TestLinesStayWhole(t *testing.T) {
	r, w := openPipe(t)
	number, err := syscall.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	other := os.NewFile(uintptr(number), "the same pipe") // os.File lets one Write through at a time
	t.Cleanup(func() { _ = other.Close() })
	one := New(w)
	files := []*File{one, one, {file: other, turn: one.turn}}
	const calls = 40
	var writers sync.WaitGroup
	for name, f := range files {
		writers.Go(func() {
			for call := range calls {
				var lines bytes.Buffer
				for i := range 30 { // together some 200 KiB, one of them longer than a turn
					fmt.Fprintf(&lines, "%d %d %d %s\n", name, call, i, strings.Repeat(string(rune('a'+name)), i*200+i/29*2*turnBytes))
				}
				if n, err := f.Write(lines.Bytes()); n != lines.Len() || err != nil {
					t.Errorf("Write gives %d, %v", n, err)
				}
			}
		})
	}
	go func() { // ends with the writers; the reader waits for it
		writers.Wait()
		_, _ = w.Close(), other.Close()
	}()
	next := make([]int, len(files))
	lines := bufio.NewReaderSize(r, 512)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			break
		}
		var name, call, i int
		if _, err := fmt.Sscanf(line, "%d %d %d", &name, &call, &i); err != nil {
			t.Fatalf("%v in %.80q", err, line)
		}
		want := fmt.Sprintf("%d %d %d %s\n", name, call, i, strings.Repeat(string(rune('a'+name)), i*200+i/29*2*turnBytes))
		if line != want || call*30+i != next[name] {
			t.Fatalf("line %d of writer %d is %.80q of %d bytes", next[name], name, line, len(line))
		}
		next[name]++
	}
	for name, n := range next {
		if n != calls*30 {
			t.Errorf("writer %d has %d lines, want %d", name, n, calls*30)
		}
	}
}

// A caller that has no more time does not wait for its turn.
func TestWriteContextWhileAnotherHangs(t *testing.T) {
	r, w := openPipe(t)
	f := New(w)
	hanging := make(chan error, 1)
	go func() { // ends when the pipe is read
		_, err := f.Write(make([]byte, 1<<20))
		hanging <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil { // it has its turn
		t.Fatal(err)
	}
	cause := errors.New("no time")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if n, err := f.WriteContext(ctx, []byte("line\n")); n != 0 || !errors.Is(err, cause) {
		t.Errorf("WriteContext gives %d, %v; want the cause of the end", n, err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1<<20-1)); err != nil {
		t.Fatal(err)
	}
	if err := <-hanging; err != nil {
		t.Error(err)
	}
}

// The standard files are these.
func TestStandardFiles(t *testing.T) {
	for f, want := range map[*File]*os.File{Stdout(): os.Stdout, Stderr(): os.Stderr} {
		info, err := f.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if of, err := want.Stat(); err != nil || !os.SameFile(info, of) {
			t.Errorf("this is not %s: %v", want.Name(), err)
		}
	}
}

// A pipe without a reader is an error, and does not end the program.
func TestBrokenPipeIsAnError(t *testing.T) {
	r, w := openPipe(t)
	_ = r.Close()
	if _, err := open(w).Write([]byte("line\n")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write gives %v", err)
	}
	_ = w.Close()
	if open(w) != nil {
		t.Error("a closed file is opened")
	}
}
