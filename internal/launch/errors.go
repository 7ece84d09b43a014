package launch

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/wire"
)

// Reason is which of the usual causes kept a plugin from starting, or this
// process from attaching to it.
type Reason int

// The reasons, each with a text of its own for the operator.
const (
	// ReasonOther is none of the others; the text says what happened.
	ReasonOther Reason = iota
	// ReasonNotFound: there is no such file.
	ReasonNotFound
	// ReasonNotExecutable: a folder, or a file without execute permission.
	ReasonNotExecutable
	// ReasonArchitecture: built for another machine, or no program at all.
	ReasonArchitecture
	// ReasonNotPlugin: it ran and ended, or spoke, but not as a plugin does.
	ReasonNotPlugin
	// ReasonVersion: a plugin of another protocol or version.
	ReasonVersion
	// ReasonTimeout: no handshake in time, or no connection after it.
	ReasonTimeout
	// ReasonStopped: the start was called off.
	ReasonStopped
	// ReasonEnvironment: this machine does not allow it (no folder for a
	// socket, no processes left).
	ReasonEnvironment
	// ReasonNotSocket: what is to be attached to is no stream socket.
	ReasonNotSocket
	// ReasonNobody: nobody listens at the socket, or takes connections.
	ReasonNobody
	// ReasonPermission: this process may not connect to the socket.
	ReasonPermission
	// ReasonPeer: the process at the socket belongs to another user.
	ReasonPeer
)

var reasonNames = [...]string{
	"other", "not found", "not executable", "wrong architecture", "not a plugin",
	"wrong version", "timeout", "stopped", "environment",
	"not a socket", "nobody listens", "no permission", "another user's",
}

// String is a short name.
func (r Reason) String() string { return reasonNames[r] }

// Error says why a plugin did not start, or could not be attached to.
type Error struct {
	// Reason is the kind of cause.
	Reason Reason
	// Path is the executable, or the socket.
	Path string
	// Err says what happened and what to do, in words for an operator.
	Err error
	// attach: Path is a socket.
	attach bool
}

// Error is the whole text.
func (e *Error) Error() string {
	if e.attach {
		return fmt.Sprintf("attach to %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("start %s: %v", e.Path, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Check says in plain words what exec would say in numbers: whether path can be
// a plugin's executable. What it can not see it leaves to exec. The error is an
// *Error; Start gives the same.
func Check(path string) error {
	fail := func(reason Reason, format string, args ...any) error {
		return &Error{Reason: reason, Path: path, Err: fmt.Errorf(format, args...)}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(ReasonNotFound, "there is no such file; check the path, or build the plugin")
	case err != nil:
		return fail(ReasonOther, "look at the file: %w", err)
	case info.IsDir():
		return fail(ReasonNotExecutable, "this is a folder; name the plugin's executable")
	case !info.Mode().IsRegular():
		return fail(ReasonNotExecutable, "this is no regular file (%v); name the plugin's executable", info.Mode().Type())
	case info.Mode()&0o111 == 0 || unix.Access(path, unix.X_OK) != nil:
		return fail(ReasonNotExecutable, "the file is not executable (mode %04o); run: chmod +x %s", info.Mode().Perm(), path)
	}
	return nil
}

// explain turns what go-plugin or exec said into an *Error. The process must
// have ended.
func (p *process) explain(ctx context.Context, err error) error {
	fail := func(reason Reason, format string, args ...any) error {
		return &Error{Reason: reason, Path: p.cmd.Path, Err: fmt.Errorf(format, args...)}
	}
	said := p.handshake.said()
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fail(ReasonArchitecture, "%s", p.badFormat())
	case p.state == nil && errors.Is(err, fs.ErrNotExist): // the file is there: Check saw it
		return fail(ReasonOther, "its interpreter or loader is missing (the first line of a script, or a libc): %w", err)
	case said != nil && said.core == wire.CoreProtocolVersion && said.app != wire.ProtocolVersion:
		return fail(ReasonVersion, "the plugin speaks protocol version %d, this host version %d; %s",
			said.app, wire.ProtocolVersion, upgradeHint(said.app))
	case said != nil && (said.core != wire.CoreProtocolVersion || said.protocol != "grpc"):
		return fail(ReasonVersion, "the plugin speaks %s over go-plugin core protocol %d, this host grpc over %d; build it with a pluginsdk of this host's version",
			said.protocol, said.core, wire.CoreProtocolVersion)
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && said != nil:
		return fail(ReasonTimeout, "it named its socket, but does not answer there within the start timeout%s; does another process hold the socket?", p.lastWords())
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fail(ReasonTimeout, "no handshake within the start timeout%s; is it a servetrace plugin? Run it by hand to see", p.lastWords())
	case ctx.Err() != nil:
		return fail(ReasonStopped, "start called off: %w", context.Cause(ctx))
	case p.state != nil && said == nil:
		return fail(ReasonNotPlugin, "it ended before the handshake (%v)%s; is it a servetrace plugin? Run it by hand to see", p.state, p.lastWords())
	}
	return fail(ReasonOther, "%w", err)
}

func (p *process) lastWords() string {
	if last := p.out.lastLine(); last != "" {
		return fmt.Sprintf(", its last line: %q", last)
	}
	return ", without a word"
}

func upgradeHint(app int) string {
	if app > wire.ProtocolVersion {
		return "upgrade the host, or build the plugin with an older pluginsdk"
	}
	return "build the plugin with a newer pluginsdk"
}

// badFormat says for which machine an executable was built.
func (p *process) badFormat() string {
	here := runtime.GOOS + "/" + runtime.GOARCH
	f, err := os.Open(p.cmd.Path)
	if err != nil {
		return "not a program for " + here
	}
	defer func() { _ = f.Close() }() // read only
	file, err := elf.NewFile(f)
	if err == nil {
		return fmt.Sprintf("it is built for %v, this machine is %s; build it with GOARCH=%s", file.Machine, here, runtime.GOARCH)
	}
	head := make([]byte, 2)
	if _, err := f.ReadAt(head, 0); err == nil && bytes.Equal(head, []byte("#!")) {
		return "its first line names no usable interpreter"
	}
	return fmt.Sprintf("it is no program for %s: neither an ELF file nor a script with a first line like #!/usr/bin/python3", here)
}
