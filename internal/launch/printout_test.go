package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/stdio"
	"github.com/servetrace/servetrace/test/testplugin"
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

// printing starts a printout. It returns the plugin's end of its pipe, and the reader of
// the host's standard output.
func printing(t *testing.T) (p *printout, plugin, reader, stdout *os.File, log *testplugin.Log) {
	t.Helper()
	from, plugin := openPipe(t)
	reader, stdout = openPipe(t)
	log = &testplugin.Log{}
	return startPrintout(from, stdio.New(stdout), textLog(log)), plugin, reader, stdout, log
}

// fill prints lines until all pipes are full, and returns how many there are.
func fill(t *testing.T, plugin, stdout *os.File) (lines int) {
	t.Helper()
	for {
		if err := plugin.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := fmt.Fprintf(plugin, "%07d\n", lines) // all of it, or nothing
		switch {
		case err == nil:
			lines++
		case !errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatalf("print line %d: %v", lines, err)
		case isFull(t, stdout):
			return lines
		}
	}
}

// isFull reports whether a pipe takes nothing.
func isFull(t *testing.T, w *os.File) bool {
	t.Helper()
	conn, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	if fault := conn.Control(func(fd uintptr) {
		ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
	}); fault != nil || err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(fault, err)
	}
	return ready == 0 && err == nil
}

// Output that comes in pieces goes out unchanged, in lines, with an end to the last one.
// So does a line that is longer than any buffer.
func TestPrintoutCopiesLines(t *testing.T) {
	p, plugin, reader, stdout, _ := printing(t)
	text := "one\ntwo\n\n" + strings.Repeat("long ", maxPrintedLine/2) + "\n" + strings.Repeat("wide", printBuffer) + "\nno end"
	read := make(chan string, 1)
	go func() { // ends with the pipe
		all, _ := io.ReadAll(reader)
		read <- string(all)
	}()
	for rest := text; rest != ""; {
		n := min(len(rest), 1013)
		if _, err := io.WriteString(plugin, rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	_ = plugin.Close()
	p.end()
	_ = stdout.Close()
	if got := <-read; got != text+"\n" {
		t.Errorf("%d bytes arrived, want %d", len(got), len(text)+1)
	}
	if n := p.dropped.Load(); n != 0 {
		t.Errorf("%d lines are dropped", n)
	}
}

// While the output is not read, the plugin waits; nothing is lost.
func TestPrintoutHoldsThePluginBack(t *testing.T) {
	p, plugin, reader, stdout, _ := printing(t)
	lines := fill(t, plugin, stdout)
	read := make(chan string, 1)
	go func() { // ends with the pipe
		all, _ := io.ReadAll(reader)
		read <- string(all)
	}()
	_ = plugin.Close()
	<-p.done
	p.end()
	_ = stdout.Close()
	got := strings.Split(<-read, "\n")
	if len(got) != lines+1 || got[0] != "0000000" || got[lines-1] != fmt.Sprintf("%07d", lines-1) || p.dropped.Load() != 0 {
		t.Errorf("%d lines arrived of %d, %d are dropped", len(got)-1, lines, p.dropped.Load())
	}
}

// A reader that stopped reading does not delay the end, and the lost lines are counted.
func TestPrintoutEndsWithoutItsReader(t *testing.T) {
	p, plugin, reader, stdout, log := printing(t)
	lines := fill(t, plugin, stdout)
	_ = plugin.Close()
	p.end()
	dropped := p.dropped.Load()
	if err := reader.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	arrived := 0
	for done := false; !done; { // until run, which hangs in a write, has ended
		select {
		case <-p.done:
			done = true
			_ = reader.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		default:
		}
		chunk := make([]byte, printBuffer)
		n, _ := reader.Read(chunk)
		arrived += bytes.Count(chunk[:n], newline)
	}
	// The content of the write that hung counts as dropped, and a part of it arrives.
	if missing := lines - arrived; missing <= 0 || dropped < uint64(missing) || dropped > uint64(missing+printBuffer/8) {
		t.Errorf("of %d lines %d arrived, %d are counted as dropped", lines, arrived, dropped)
	}
	if want := fmt.Sprintf("standard output\" lines=%d", dropped); !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, log)
	}
}

// A broken standard output is broken for the plugin, too.
func TestPrintoutOfABrokenPipe(t *testing.T) {
	p, plugin, reader, _, log := printing(t)
	_ = reader.Close()
	if _, err := io.WriteString(plugin, "one\ntwo\nthree"); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if _, err := io.WriteString(plugin, "four\n"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the plugin's write gives %v", err)
	}
	p.end()
	if n := p.dropped.Load(); n != 3 {
		t.Errorf("%d lines are counted as dropped, want 3", n)
	}
	if !strings.Contains(log.String(), "the reader of the service's standard output has ended") {
		t.Errorf("the log says nothing of it:\n%s", log)
	}
}

// A disk may have room again: unwritten lines are not lost before the end.
func TestPrintoutToAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no full disk here: %v", err)
	}
	defer func() { _ = full.Close() }()
	from, plugin := openPipe(t)
	log := &testplugin.Log{}
	p := startPrintout(from, stdio.New(full), textLog(log))
	if _, err := io.WriteString(plugin, "one\ntwo"); err != nil {
		t.Fatal(err)
	}
	testplugin.WaitFor(t, "a word of it in the log", func() bool { return strings.Contains(log.String(), "no space left on device") })
	_ = plugin.Close()
	p.end()
	if n := p.dropped.Load(); n != 2 {
		t.Errorf("%d lines are dropped, want 2", n)
	}
}

// A plugin that prints without pause gets EPIPE at once when the reader of standard
// output has gone: lines that the host would read and throw away count as delivered.
func TestPrintoutTakesNothingAfterItsReader(t *testing.T) {
	p, plugin, reader, _, _ := printing(t)
	_ = reader.Close()
	taken := 0
	for line := bytes.Repeat([]byte("line 56\n"), 512); ; {
		n, err := plugin.Write(line)
		if taken += n; errors.Is(err, syscall.EPIPE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	<-p.done
	if most := 4 * printBuffer; taken > most { // the buffer, and the pipe of 64 KiB
		t.Errorf("%d bytes are taken from the plugin, want %d at most", taken, most)
	}
	p.end()
}

// The text that a process prints to the given descriptor arrives, even if it is printed
// right before the end. If standard output is a file, the process has the file itself.
func TestStandardOutputOfAProcess(t *testing.T) {
	reader, stdout := openPipe(t)
	for name, share := range map[string]func(*Command){
		"copied":  func(c *Command) { c.Output = stdio.New(stdout) },
		"its own": func(c *Command) { c.Stdout = stdout },
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _ := command(t, "print:what it prints~no end")
			share(&cmd)
			p := serving(t, cmd)
			if err := export(t, p); err == nil {
				t.Error("the plugin is there after its end")
			}
			<-p.Done()
			want := "what it prints\nno end"
			if name == "copied" {
				want += "\n"
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(reader, got); err != nil || string(got) != want || p.Unprinted() != 0 {
				t.Errorf("standard output has %q, %v", got, err)
			}
		})
	}
}
