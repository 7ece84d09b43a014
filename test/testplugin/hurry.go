package testplugin

import (
	"os"
	"syscall"
)

// Hurry takes away the second for which a process under the race detector
// pauses at its end: with a plugin or two in each test those are most of its
// time. A host hands no variable down that would, so the process begins anew,
// with it, under the same id.
func Hurry() {
	const variable = "GORACE"
	if !race || os.Getenv(variable) != "" {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		return // as it is, it only takes longer
	}
	_ = syscall.Exec(exe, os.Args, append(os.Environ(), variable+"=atexit_sleep_ms=0")) // likewise
}
