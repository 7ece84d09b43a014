package testplugin

import (
	"os"
	"syscall"
)

// Hurry removes the second for which a process with the race detector sleeps at its
// end. This sleep would be most of the time of tests with plugins. A host passes no
// variable that disables it, so the process executes itself again with the variable,
// under the same id.
func Hurry() {
	const variable = "GORACE"
	if !race || os.Getenv(variable) != "" {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		return // without the effect, the process only takes longer
	}
	_ = syscall.Exec(exe, os.Args, append(os.Environ(), variable+"=atexit_sleep_ms=0")) // as above
}
