package pluginsdk

import (
	"context"
	"io"
	"strings"
	"time"
)

// Env is the environment of [Run], a plain value, so that several plugins can run in one
// process, for example in tests.
type Env struct {
	// Args is the command line in the form of os.Args, with the program's path first.
	Args []string
	// Environ is the environment in the form of os.Environ. Run does not read the
	// environment of the process.
	Environ []string
	// Stdin is read to its end, and the bytes are discarded. When Stdin ends, Run ends too,
	// because the host has ended or no longer needs the plugin. It may be nil. Before Run
	// returns, it closes Stdin if that is an io.Closer.
	Stdin io.Reader
	// Handshake receives one line when the socket is open. Required under a host.
	Handshake io.Writer
	// Stdout becomes Setup.Stdout and receives the output of flags such as --help. If nil,
	// Stderr is used.
	Stdout io.Writer
	// Stderr receives messages for a user that runs the plugin by hand, and the log if Log is
	// nil. If nil, they are discarded.
	Stderr io.Writer
	// Log receives the log. If nil, Stderr is used.
	Log io.Writer

	// shaken is called after the handshake, before any constructor. It may be nil.
	shaken func()
	// setenv sets a granted variable in the process, for libraries. If nil, only Setup.Getenv
	// returns the variable.
	setenv func(name, value string) error
	// orphaned ends when the parent process has changed. It is nil if the parent is not
	// watched.
	orphaned context.Context
	// drainTimeout replaces the constant of the same name in tests, unless it is zero.
	drainTimeout time.Duration
}

// lookup returns the value of a variable in Environ, or "". If the variable occurs several
// times, the last value counts, as in a process.
func (e Env) lookup(name string) string {
	value := ""
	for _, entry := range e.Environ {
		if key, v, ok := strings.Cut(entry, "="); ok && key == name {
			value = v
		}
	}
	return value
}
