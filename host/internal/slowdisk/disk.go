// Package slowdisk looks at files of a disk that may not answer. A call to a file on a
// server that is gone blocks in the kernel, perhaps for hours. It must not block the
// start of a service, its end, or another plugin.
//
//  1. Aside calls a function in a goroutine and leaves it behind at the end of a
//     context. The goroutine ends when the disk comes back.
//  2. Look does the same, one call at a time for each Disk.
//
// The package does not retry and does not read settings. Open this file first.
package slowdisk

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// Patience is the usual time limit for a disk to list a folder or to identify a file.
const Patience = 3 * time.Second

// ErrSilent is the error if a disk does not answer in time.
var ErrSilent = errors.New("the disk does not answer; is its server gone?")

// Aside calls look in a goroutine and returns its results. The goroutine is needed
// because look may block until the disk answers. If ctx ends first, Aside returns and
// the goroutine continues. The error is then [ErrSilent] if ctx had a deadline,
// otherwise the cause of ctx.
func Aside[T any](ctx context.Context, look func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	said := make(chan result, 1)
	go func() { // this goroutine ends when the disk answers
		value, err := look()
		said <- result{value, err}
	}()
	select {
	case r := <-said:
		return r.value, r.err
	case <-ctx.Done():
	}
	select { // if both were ready at once, the result counts
	case r := <-said:
		return r.value, r.err
	default:
		var none T
		return none, cause(ctx)
	}
}

// cause returns the error for a call that was not over when ctx ended.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return ErrSilent
}

// Disk allows one access at a time. If a disk does not answer for days, only one
// goroutine with its thread waits for it, instead of one for each attempt. Safe for
// concurrent use.
type Disk struct{ busy chan struct{} }

// New returns a Disk.
func New() Disk { return Disk{busy: make(chan struct{}, 1)} }

// Busy reports whether a call of Look is waiting for the disk.
func (d Disk) Busy() bool { return len(d.busy) > 0 }

// Look waits until the earlier calls of Look on the same Disk have ended, and then does
// the same as Aside.
func Look[T any](ctx context.Context, d Disk, look func() (T, error)) (T, error) {
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		var none T
		return none, cause(ctx)
	}
	return Aside(ctx, func() (T, error) {
		defer func() { <-d.busy }()
		return look()
	})
}

// Touch reads the beginning of an executable, as the kernel does before it runs the file.
// It blocks until the disk answers. Without Touch, the start of a process would wait for
// the disk. Go's runtime, and with it all requests, can stand still during that time. Touch
// reports no error, because the start reports a better one.
func Touch(path string) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // opening a named pipe would block
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	_, _ = io.ReadFull(f, make([]byte, os.Getpagesize()))
	_ = f.Close() // nothing was written, so an error of Close has no effect
}
