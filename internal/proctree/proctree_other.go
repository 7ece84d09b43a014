//go:build unix && !linux

package proctree

import "context"

// Kill finds nothing here and returns 0 at once.
func Kill(context.Context, Mark) (int, error) { return 0, nil }

// Await finds nothing here and returns at once.
func Await(context.Context, Mark) error { return nil }

// Reap does nothing here: orphans fall to init alone.
func Reap(context.Context, int) {}
