package launch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/stdio"
)

// Bounds of the lines that a plugin prints for the host's standard output. The pipe from the
// plugin bounds them, too.
const (
	// printBuffer is the size of a read, in bytes.
	printBuffer = 64 << 10
	// maxPrintedLine is the length in bytes of the longest line that is written in one piece.
	maxPrintedLine = 1 << 20
	// printPause is the pause after each read that fills the buffer. It limits the CPU that
	// endless output costs the host.
	printPause = 2 * time.Millisecond
	// printRetry is the pause after a write that has failed.
	printRetry = time.Second
	// printGrace bounds the time to write the remaining lines after the end of the process.
	// It is shorter than killGrace.
	printGrace = 700 * time.Millisecond
	// stuckGrace bounds the time that the method end waits for a write that does not return.
	stuckGrace = 100 * time.Millisecond
)

// printout copies the lines that a plugin prints on its extra descriptor to the host's
// standard output. It drops no line while the plugin runs. If the host's standard output is
// read slowly, the pipe from the plugin fills, and the plugin waits.
//
//  1. run reads the pipe and writes whole lines. It ends when the plugin has closed the pipe.
//     It also ends when the reader of standard output has ended, and then the plugin's writes
//     fail.
//  2. end is called after the process has ended. Lines that are not written after
//     printGrace are counted as dropped.
type printout struct {
	from   *os.File
	to     *stdio.File
	log    *slog.Logger
	ctx    context.Context
	giveUp context.CancelFunc
	done   chan struct{} // closed when run has ended

	buf     []byte        // bytes that are read and not yet written; used only by run
	held    atomic.Uint64 // number of lines in buf
	dropped atomic.Uint64 // number of lines that were not written
}

// startPrintout returns a printout that copies lines from a pipe to a file. The caller must
// call its method end.
func startPrintout(from *os.File, to *stdio.File, log *slog.Logger) *printout {
	p := &printout{from: from, to: to, log: log, done: make(chan struct{}), buf: make([]byte, 0, printBuffer)}
	p.ctx, p.giveUp = context.WithCancel(context.Background())
	go p.run()
	return p
}

func (p *printout) run() {
	defer close(p.done)
	for p.ctx.Err() == nil {
		ended := !p.read()
		if ended && len(p.buf) > 0 && p.buf[len(p.buf)-1] != '\n' {
			p.buf = append(p.buf, '\n') // the output of the next process must begin in a new line
		}
		if !p.write(p.whole()) || ended {
			return
		}
	}
}

// read reads from the pipe into the buffer. It reports false at the end.
func (p *printout) read() bool {
	if len(p.buf) == cap(p.buf) { // the line does not fit into the buffer
		p.buf = append(make([]byte, 0, 2*cap(p.buf)), p.buf...)
	}
	n, err := p.from.Read(p.buf[len(p.buf):cap(p.buf)])
	p.buf = p.buf[:len(p.buf)+n]
	p.held.Store(countLines(p.buf))
	if len(p.buf) == cap(p.buf) {
		time.Sleep(printPause)
	}
	return err == nil
}

// whole returns the number of bytes at the beginning of the buffer that are whole lines. If a
// line is longer than maxPrintedLine, it returns the size of the whole buffer.
func (p *printout) whole() int {
	if len(p.buf) >= maxPrintedLine {
		return len(p.buf)
	}
	return bytes.LastIndexByte(p.buf, '\n') + 1
}

// write writes the first size bytes of the buffer, and tries again if that fails. It returns
// false if the reader of standard output has ended, or if the method end gives up.
func (p *printout) write(size int) bool {
	failed := false
	for {
		n, err := p.to.WriteContext(p.ctx, p.buf[:size])
		size -= n
		p.buf = append(p.buf[:0], p.buf[n:]...)
		p.held.Store(countLines(p.buf))
		switch {
		case err == nil:
			if cap(p.buf) > printBuffer && len(p.buf) < printBuffer {
				p.buf = append(make([]byte, 0, printBuffer), p.buf...)
			}
			return true
		case p.ctx.Err() != nil:
			return false
		case errors.Is(err, syscall.EPIPE):
			p.log.Warn("the reader of the service's standard output has ended: further writes of the plugin fail", "error", err)
			p.drop()
			return false
		case !failed:
			failed = true
			p.log.Warn("the plugin's output cannot be written to the service's standard output: it is tried again", "error", err)
		}
		select {
		case <-time.After(printRetry):
		case <-p.ctx.Done():
			return false
		}
	}
}

// end waits until the output of an ended process is written, at most for printGrace, and
// counts the remaining lines as dropped. It must be called only once.
func (p *printout) end() {
	select {
	case <-p.done:
	case <-time.After(printGrace): // the reader is slow, or a child of the plugin holds the pipe
	}
	p.giveUp()
	_ = p.from.SetReadDeadline(time.Now()) // ends a read in run; fails if the pipe is closed already
	select {
	case <-p.done:
	case <-time.After(stuckGrace): // run writes, and the write ends only when the reader reads
	}
	p.drop()
	if n := p.dropped.Load(); n > 0 {
		p.log.Warn("lines that the plugin printed did not reach the service's standard output", "lines", n)
	}
}

// drop counts the lines in the buffer and in the pipe as dropped, and closes the pipe.
// It does not wait for more output. After the close, a process that still prints gets
// EPIPE.
func (p *printout) drop() {
	p.dropped.Add(p.held.Swap(0))
	if conn, err := p.from.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { // fails if the pipe is closed already
			rest := make([]byte, pipeBytes)
			n, _ := unix.Read(int(fd), rest) // returns at once, because the pipe is in non-blocking mode
			p.dropped.Add(countLines(rest[:max(0, n)]))
		})
	}
	_ = p.from.Close() // an error has no effect: the file was only read
}

// countLines counts the lines of text. The last line counts even if it has no end.
func countLines(text []byte) uint64 {
	n := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return uint64(n)
}
