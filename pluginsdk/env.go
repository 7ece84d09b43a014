package pluginsdk

import (
	"io"
	"strings"
	"time"
)

// Env is the process as [Run] sees it, a plain value, so that several plugins
// can run in one process, in tests.
type Env struct {
	// Args are the command line, the program's path first, as in os.Args.
	Args []string
	// Environ is the environment in the form of os.Environ. Run does not look
	// at the process's own.
	Environ []string
	// Stdin is read, and ignored, until it ends: then the host is gone or done,
	// and Run ends. Nil: it is not watched. If it is an io.Closer, Run closes it
	// in the end.
	Stdin io.Reader
	// Handshake gets one line, once the socket is open. Required under a host.
	Handshake io.Writer
	// Stdout is Setup.Stdout, and gets what --help and the like print. Nil: what
	// Stderr is.
	Stdout io.Writer
	// Stderr gets what is printed by hand, and the log if Log is nil. Nil: discarded.
	Stderr io.Writer
	// Log gets the log. Nil: what Stderr is.
	Log io.Writer

	// shaken is called when the handshake is written, before any constructor.
	shaken func()
	// setenv puts a granted variable where libraries read it. Nil: nowhere but
	// Setup.Getenv.
	setenv func(name, value string) error
	// orphaned is closed when the parent process is another. Nil: not watched.
	orphaned <-chan struct{}
	// drainTimeout is for tests. Zero: the constant of that name.
	drainTimeout time.Duration
}

// lookup finds a variable in Environ; the last of several counts, as in a
// process.
func (e Env) lookup(name string) string {
	value := ""
	for _, entry := range e.Environ {
		if key, v, ok := strings.Cut(entry, "="); ok && key == name {
			value = v
		}
	}
	return value
}
