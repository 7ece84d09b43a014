//go:build !linux

package peer

import "syscall"

// deathPact is nothing here: a peer that does not watch its standard input
// outlives a test that is killed.
func deathPact() *syscall.SysProcAttr { return nil }
