package pluginsdk

import (
	"context"
	"io"
	"strings"
	"time"
)

// Env holds everything that [Run] uses of a process: arguments, variables, input and
// output. So several plugins can run in one process, for example in tests.
type Env struct {
	// Args is the command line in the form of os.Args. Its first element is the program's
	// path.
	Args []string
	// Environ is the environment in the form of os.Environ. Run does not read the
	// environment of the process.
	Environ []string
	// Stdin ends the plugin: Run reads it, discards the bytes, and returns after its end. A
	// host closes it when it no longer needs the plugin. It may be nil. If Stdin is an
	// io.Closer, Run closes it before it returns.
	Stdin io.Reader
	// Handshake receives one line, the handshake, when the socket is open. It is required if
	// a host started the plugin.
	Handshake io.Writer
	// Stdout receives the writes to Setup.Stdout, and the output of flags such as --help. If
	// nil, Stderr is used.
	Stdout io.Writer
	// Stderr receives messages for a user that runs the plugin by hand, and the log if Log is
	// nil. If nil, they are discarded.
	Stderr io.Writer
	// Log receives the log, as lines of JSON, or as text with --listen. If nil, Stderr is
	// used.
	Log io.Writer

	// shaken is called when the handshake has been written, before any constructor. It may
	// be nil.
	shaken func()
	// setenv sets a variable that the host has sent in the process's environment, for
	// libraries that read it. If nil, only Setup.Getenv returns the variable.
	setenv func(name, value string) error
	// orphaned is a context that ends when the parent process has changed, because the host
	// has ended. It is nil if the parent is not watched.
	orphaned context.Context
	// drainTimeout replaces the constant of the same name in tests, unless it is zero.
	drainTimeout time.Duration
}

// lookup returns the value of a variable in Environ, or "" if it is missing. If the
// variable occurs several times, the last value counts, as in a process.
func (e Env) lookup(name string) string {
	value := ""
	for _, entry := range e.Environ {
		if key, v, ok := strings.Cut(entry, "="); ok && key == name {
			value = v
		}
	}
	return value
}
