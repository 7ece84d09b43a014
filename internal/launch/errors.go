package launch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/servetrace/servetrace/internal/wire"
)

// Reason is the kind of cause of a failed start, or of a failed attachment.
type Reason int

// The reasons.
const (
	// ReasonOther is a cause that none of the other reasons describes.
	ReasonOther Reason = iota
	// ReasonNotFound means that there is no such file.
	ReasonNotFound
	// ReasonNotExecutable means a folder, or a file without execute permission.
	ReasonNotExecutable
	// ReasonArchitecture means a program for another machine, or a file that is no program.
	ReasonArchitecture
	// ReasonNotPlugin means that the program ran, but not as a plugin.
	ReasonNotPlugin
	// ReasonVersion means a plugin with another protocol or protocol version.
	ReasonVersion
	// ReasonTimeout means that the handshake, or the connection after it, did not come in
	// time.
	ReasonTimeout
	// ReasonStopped means that the caller cancelled the start.
	ReasonStopped
	// ReasonEnvironment means that this machine does not allow a start, for example because
	// it has no folder for a socket, or no processes left.
	ReasonEnvironment
	// ReasonNotSocket means that the path is not a stream socket.
	ReasonNotSocket
	// ReasonNoListener means that no process accepts connections at the socket.
	ReasonNoListener
	// ReasonPermission means that this process may not connect to the socket.
	ReasonPermission
	// ReasonPeer means that the process at the socket belongs to another user.
	ReasonPeer
	// ReasonUntrusted means that other users can change the executable, or that it differs
	// from its pin.
	ReasonUntrusted
)

var reasonNames = [...]string{
	"other", "not found", "not executable", "wrong architecture", "not a plugin",
	"wrong version", "timeout", "stopped", "environment",
	"not a socket", "no listener", "no permission", "another user's", "untrusted",
}

// String returns a short name.
func (r Reason) String() string { return reasonNames[r] }

// Error is the error of a failed start or attachment.
type Error struct {
	// Reason is the kind of cause.
	Reason Reason
	// Path is the executable, or the socket.
	Path string
	// Err describes the cause and the remedy, for an operator.
	Err error
	// Report describes the end of the process. It is nil if there was no process, or if the
	// process could not be ended.
	Report *Report
	// attach is set if Path is a socket.
	attach bool
}

// Error returns the text with the path.
func (e *Error) Error() string {
	if e.attach {
		return fmt.Sprintf("attach to %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("start %s: %v", e.Path, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Incompatible reports whether the file cannot work with this host on this machine, so
// that it must be replaced.
func (e *Error) Incompatible() bool {
	return e.Reason == ReasonVersion || e.Reason == ReasonArchitecture
}

// Untrusted reports whether the plugin is a risk, so that an operator must change the
// file, its folder or the settings.
func (e *Error) Untrusted() bool {
	return e.Reason == ReasonUntrusted || e.Reason == ReasonPeer
}

// launchError returns the *Error of a failed start of the executable at path.
func launchError(reason Reason, path, format string, args ...any) *Error {
	return &Error{Reason: reason, Path: path, Err: fmt.Errorf(format, args...)}
}

// explain returns an *Error for a start that has failed with err, an error of go-plugin or
// os/exec. The *Error includes the report of the process, which must have ended.
func (p *processRunner) explain(ctx context.Context, err error) error {
	e := p.classify(ctx, err)
	if r := p.report(); r.Exit != "" {
		e.Report = &r
	}
	return e
}

// classify returns the *Error for a start that has failed with err, without the report.
func (p *processRunner) classify(ctx context.Context, err error) *Error {
	fail := func(reason Reason, format string, args ...any) *Error {
		return launchError(reason, p.cmd.Path, format, args...)
	}
	said, refused := p.handshake.said(), p.socket.refusal()
	ran, timedOut := p.child.life.state != nil, errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fail(ReasonArchitecture, "%s", badFormat(p.cmd.Path))
	case errors.Is(err, syscall.ETXTBSY):
		return fail(ReasonOther, "another process has the file open for writing, still after %v; let the copy end (see: fuser %s), and put a new file there by renaming it: %w",
			startRetry, quote(p.cmd.Path), err)
	case !ran && errors.Is(err, syscall.EAGAIN), ran && said == nil && p.out.lackedThreads():
		return fail(ReasonEnvironment, "this user or this cgroup may have no more processes or threads; raise the limit (ulimit -u, LimitNPROC=, pids.max), or run fewer: %s",
			cmp.Or(p.out.lastLine(), err.Error()))
	case !ran && errors.Is(err, fs.ErrPermission):
		hint := "name another place"
		if len(p.cmd.Digest) > 0 {
			hint += ", or for its copy set TMPDIR to one"
		}
		return fail(ReasonEnvironment, "the kernel may not run it: its interpreter is not a program, its file system is mounted noexec, or a rule of the system forbids it; mend the script's first line, or %s: %w",
			hint, err)
	case refused != nil:
		return fail(ReasonPeer, "the host does not use it: %w; a plugin must run as the user of this process, with a Unix socket", refused)
	case !ran && errors.Is(err, fs.ErrNotExist): // the file exists, because look has found it
		return fail(ReasonOther, "its interpreter or loader is missing (the first line of a script, or a libc): %w", err)
	case said != nil && said.core == wire.CoreProtocolVersion && said.app != wire.ProtocolVersion:
		return fail(ReasonVersion, "the plugin speaks protocol version %d, this host version %d; %s",
			said.app, wire.ProtocolVersion, upgradeHint(said.app))
	case said != nil && (said.core != wire.CoreProtocolVersion || said.protocol != "grpc"):
		return fail(ReasonVersion, "the plugin speaks %s over go-plugin core protocol %d, this host grpc over %d; build it with a pluginsdk of this host's version",
			said.protocol, said.core, wire.CoreProtocolVersion)
	case timedOut && said != nil:
		return fail(ReasonTimeout, "it named its socket, but does not answer there within the start timeout%s; does another process hold the socket?", p.lastWords())
	case timedOut:
		return fail(ReasonTimeout, "no handshake within the start timeout%s; is it a servetrace plugin? Run it by hand to see", p.lastWords())
	case ctx.Err() != nil:
		return fail(ReasonStopped, "start called off: %w", context.Cause(ctx))
	case ran && said == nil && bytes.Contains(p.out.kept(), []byte("not meant to be executed directly")): // go-plugin's message
		return fail(ReasonNotPlugin, "it is a go-plugin program of another host, whose magic cookie it wants; name a servetrace plugin, or build it with pluginsdk")
	case ran && said == nil:
		return fail(ReasonNotPlugin, "it ended before the handshake (%s)%s; is it a servetrace plugin? Run it by hand to see", p.report().Exit, p.lastWords())
	}
	return fail(ReasonOther, "%w", err)
}

// explainLate returns the *Error for a start that did not return soon after the end of ctx.
func (p *processRunner) explainLate(ctx context.Context) error {
	reason, told := ReasonStopped, fmt.Sprintf("start called off: %v", context.Cause(ctx))
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		reason, told = ReasonTimeout, "no handshake within the start timeout"
	}
	if closed(p.child.reaped) {
		return p.explain(ctx, context.Cause(ctx))
	}
	if pid := p.child.PID(); pid != 0 {
		return launchError(reason, p.cmd.Path, "%s, and process %d does not end after SIGKILL: the kernel waits for a disk or a network file system; it is left behind", told, pid)
	}
	return launchError(reason, p.cmd.Path, "%s, and the kernel has not even started it: it waits for a disk or a network file system", told)
}

// lastWords returns the last line of the plugin's output, for the end of an error message.
func (p *processRunner) lastWords() string {
	if last := p.out.lastLine(); last != "" {
		return fmt.Sprintf(", its last line: %q", last)
	}
	return ", without output"
}

func upgradeHint(app int) string {
	if app > wire.ProtocolVersion {
		return "upgrade the host, or build the plugin with an older pluginsdk"
	}
	return "build the plugin with a newer pluginsdk"
}
