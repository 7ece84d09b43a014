//go:build unix && !linux

package plugintest

import (
	"errors"
	"syscall"
)

// setAttributes does nothing, because only Linux gives a process a network of its own.
func setAttributes(*syscall.SysProcAttr, bool) {}

var errNoNamespaces = errors.New("only Linux gives a process a network of its own")

func noNamespaces(err error) bool { return errors.Is(err, errNoNamespaces) }

func networkUse(int) (int, error) { return 0, errNoNamespaces }
