//go:build unix && !linux

package plugintest

import (
	"errors"
	"os/exec"
	"syscall"
)

// attributes put a plugin into a process group of its own. A network of its own
// is not to be had here.
func attributes(bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

var errNoNamespaces = errors.New("only Linux gives a process a network of its own")

func noNamespaces(err error) bool { return errors.Is(err, errNoNamespaces) }

func networkUse(int) (int, error) { return 0, errNoNamespaces }

// awaitEnd blocks until a child has ended. Waiting without reaping is not to be
// had here, so there is a moment in which the id may already be another's.
func awaitEnd(cmd *exec.Cmd) { _ = cmd.Wait() }
