//go:build unix && !linux

package proctree

import "context"

// Kill returns 0 at once: without /proc it finds no processes.
func Kill(context.Context, Mark) (int, error) { return 0, nil }

// Await returns nil at once: without /proc it finds no processes.
func Await(context.Context, Mark) error { return nil }

// Reap does nothing: orphans are reparented to init only.
func Reap(context.Context, int) {}
