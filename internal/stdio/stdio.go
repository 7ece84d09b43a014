// Package stdio writes lines to this process's standard output and standard error. Parts of the
// program that do not know each other use it: the service's log, and the host, which copies the
// output of plugins. Standard output and standard error are often the same terminal or pipe.
//
//  1. Stdout and Stderr return the files. If they are the same terminal or pipe, only one
//     goroutine writes to either of them at a time, so that no line is inside another line.
//  2. Write waits until no other goroutine writes, and then for the file.
//
// The package starts no goroutine and keeps no line. A caller that must not wait needs a queue of
// its own. The package has only this file.
package stdio

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// turnBytes bounds the bytes that a goroutine writes before other goroutines may write. It
	// does not split a longer line.
	turnBytes = 64 << 10
	// pieceBytes bounds the bytes of one system call. It does not split a longer line. The
	// kernel writes this many bytes to a pipe at once, so that writes of other processes do not
	// come in between.
	pieceBytes = 4 << 10
)

// File is an open file that several goroutines write lines to. It is safe for
// concurrent use.
type File struct {
	file *os.File
	turn chan struct{} // holds one element while a goroutine writes
}

// New returns a File for f. Other Files for f do not wait for its writes.
func New(f *os.File) *File { return &File{f, make(chan struct{}, 1)} }

// Stdout returns standard output, or nil if it is closed.
func Stdout() *File { return standard()[0] }

// Stderr returns standard error, or nil if it is closed.
func Stderr() *File { return standard()[1] }

// standard returns standard output and standard error. It opens them in the first call.
var standard = sync.OnceValue(func() (files [2]*File) {
	files = [2]*File{open(os.Stdout), open(os.Stderr)}
	if files[0] == nil || files[1] == nil {
		return files
	}
	out, outFault := files[0].file.Stat()
	errOut, errFault := files[1].file.Stat()
	if outFault == nil && errFault == nil && os.SameFile(out, errOut) {
		files[1].turn = files[0].turn
	}
	return files
})

// open returns a File for f with another descriptor, or nil if f is closed. If the reader of a
// pipe has ended, a write to descriptor 1 or 2 ends a Go program, but a write to another
// descriptor only returns an error.
func open(f *os.File) *File {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	own := -1
	controlled := conn.Control(func(fd uintptr) {
		own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	})
	if controlled != nil || err != nil {
		return nil
	}
	return New(os.NewFile(uintptr(own), f.Name()))
}

// Write is WriteContext with a context that never ends.
func (f *File) Write(p []byte) (n int, err error) {
	return f.WriteContext(context.Background(), p)
}

// WriteContext writes p, which consists of whole lines or is a part of a long line. If p has more
// than 64 KiB, lines of other calls may be written between its lines. When ctx ends, WriteContext
// stops waiting for other goroutines, and stops writing before the next 4 KiB. It does not
// interrupt a system call, which blocks while the reader of the file does not read.
func (f *File) WriteContext(ctx context.Context, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var written int
		written, err = f.writeTurn(ctx, p[n:n+lines(p[n:], turnBytes)])
		n += written
	}
	return n, err
}

// writeTurn waits until no other goroutine writes to the file, and then writes p.
func (f *File) writeTurn(ctx context.Context, p []byte) (n int, err error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-f.turn }()
	for n < len(p) && err == nil {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		var written int
		written, err = f.file.Write(p[n : n+lines(p[n:], pieceBytes)])
		n += written
	}
	return n, err
}

// lines returns the number of bytes at the start of p that are whole lines and fit into limit
// bytes. If the first line is longer than limit, it returns the length of this line.
func lines(p []byte, limit int) int {
	if len(p) <= limit {
		return len(p)
	}
	if end := bytes.LastIndexByte(p[:limit], '\n'); end >= 0 {
		return end + 1
	}
	if end := bytes.IndexByte(p[limit:], '\n'); end >= 0 {
		return limit + end + 1
	}
	return len(p)
}

// Terminal reports whether the file is a terminal, and returns its width as [Terminal] does.
func (f *File) Terminal() (columns int, ok bool) { return Terminal(f.file) }

// Terminal reports whether w is a terminal, and returns its present width in columns, or 0 if
// the terminal does not know it.
func Terminal(w io.Writer) (columns int, ok bool) {
	file, ok := w.(syscall.Conn)
	if !ok {
		return 0, false
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return 0, false
	}
	ok = false
	err = conn.Control(func(fd uintptr) {
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			columns, ok = int(size.Col), true
		}
	})
	return columns, err == nil && ok
}
