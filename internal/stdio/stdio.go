// Package stdio writes to this process's standard output and standard error for
// parts of the program that do not know each other: the service's log, and the
// host, which copies the output of plugins. Both are often one file, a terminal or
// a pipe.
//
//  1. Stdout and Stderr return the files. If both are the same file, their writers
//     take turns, so that no line has a part of another line inside.
//  2. Write waits for its turn, and then for the file. It delays writes to the other file
//     only if both are the same.
//
// The package starts no goroutine and keeps no line: a caller that must not wait
// puts a queue in front. Open this file first.
package stdio

import (
	"bytes"
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// turnBytes bounds the bytes that are written in one turn. A longer line is written as a
	// whole.
	turnBytes = 64 << 10
	// pieceBytes bounds the bytes of one system call. A longer line is written as a whole. A
	// pipe takes this many bytes at once, so writers in other processes do not split them.
	pieceBytes = 4 << 10
)

// File is an open file that several goroutines write lines to. It is safe for
// concurrent use.
type File struct {
	file *os.File
	turn chan struct{} // holds one element while a goroutine writes
}

// New returns a File for f. It takes turns only with callers of the same File.
func New(f *os.File) *File { return &File{f, make(chan struct{}, 1)} }

// Stdout returns standard output, or nil if it is closed.
func Stdout() *File { return standard()[0] }

// Stderr returns standard error, or nil if it is closed.
func Stderr() *File { return standard()[1] }

// standard opens both files once.
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

// open returns f with a descriptor of its own, or nil if f is closed. A failed write to
// descriptor 1 or 2 of a closed pipe would end a Go program. With another descriptor it
// only returns an error.
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

// WriteContext writes p, which consists of whole lines, or is a part of a longer line.
// Lines of other calls may be written between the lines of p, but not within a turn of 64
// KiB. When ctx ends, WriteContext stops waiting for its turn, and stops writing between
// two pieces of 4 KiB. It does not interrupt the system call for a piece, which blocks
// while the reader of the file hangs.
func (f *File) WriteContext(ctx context.Context, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var written int
		written, err = f.writeTurn(ctx, p[n:n+lines(p[n:], turnBytes)])
		n += written
	}
	return n, err
}

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

// lines returns the number of bytes at the start of p that are whole lines, at most limit.
// If the first line is longer, it returns the length of that line.
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

// Terminal reports whether the file is a terminal, and returns its present width in
// columns, or 0 if the terminal does not know it.
func (f *File) Terminal() (columns int, ok bool) {
	conn, err := f.file.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = conn.Control(func(fd uintptr) {
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			columns, ok = int(size.Col), true
		}
	})
	return columns, err == nil && ok
}
