package host

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// A disk may not answer: whoever looks at a file of a server that is gone is
// held in the kernel, for hours if need be. Nobody who matters may be held with
// it: not the start of a service, nor its end, nor another plugin. So files are
// looked at aside, and what has no answer in time is left behind; it ends when
// the disk comes back.

// diskPatience is how long a disk may take to say what is in a folder, or that a
// file has changed, while somebody waits who has better things to do.
const diskPatience = 3 * time.Second

// errDiskSilent is the answer of a disk that gives none.
var errDiskSilent = errors.New("the disk does not answer; is its server gone?")

// aside runs look, which may block for as long as the disk does, and gives what
// it says. At the end of ctx it is left behind, with its goroutine.
func aside[T any](ctx context.Context, look func() T) (T, error) {
	said := make(chan T, 1)
	go func() { said <- look() }() // ends when the disk answers
	select {
	case what := <-said:
		return what, nil
	case <-ctx.Done():
	}
	select { // a busy machine may bring both at once
	case what := <-said:
		return what, nil
	default:
		var none T
		return none, whyLeft(ctx)
	}
}

// whyLeft is why a look was left behind.
func whyLeft(ctx context.Context) error {
	if why := context.Cause(ctx); !errors.Is(why, context.DeadlineExceeded) {
		return why
	}
	return errDiskSilent
}

// disk is what one exporter looks at files with: one look at a time, so that a
// disk that is silent for days holds one goroutine, with its thread, and not one
// more at each attempt. Safe for concurrent use.
type disk struct{ turn chan struct{} }

func newDisk() disk { return disk{turn: make(chan struct{}, 1)} }

// onDisk is aside, after the looks before have been answered.
func onDisk[T any](ctx context.Context, d disk, look func() T) (T, error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		var none T
		return none, whyLeft(ctx)
	}
	return aside(ctx, func() T {
		defer func() { <-d.turn }()
		return look()
	})
}

// touch reads the beginning of an executable, which is what the kernel reads
// before it runs it, for as long as the disk takes. Starting a process must not
// come to that: Go's runtime stands still meanwhile, and all requests with it,
// as soon as the collector wants to begin. What is
// wrong with the file the start says better.
func touch(path string) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // a named pipe would be waited for
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	_, _ = io.ReadFull(f, make([]byte, os.Getpagesize()))
	_ = f.Close() // read only
}
