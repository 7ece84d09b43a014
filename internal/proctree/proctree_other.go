//go:build unix && !linux

package proctree

import "context"

// Kill returns 0 at once, because it finds no processes without /proc.
func Kill(context.Context, Mark) (int, error) { return 0, nil }

// Await returns nil at once, because it finds no processes without /proc.
func Await(context.Context, Mark) error { return nil }

// Reap does nothing, because the system makes orphans children of its first process only.
func Reap(context.Context, int) {}
