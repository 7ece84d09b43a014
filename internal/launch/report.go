package launch

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/printable"
)

// Report describes a process that has ended, for the log, a crash file and a status page. It
// contains no secrets, see Command.Secrets. The caller may change it.
type Report struct {
	// Exit describes the end of the process in a few words: "exit status 2", "signal: killed
	// (by this host: it did not answer)". Two ends of the same kind have the same text. It is
	// empty if there was no process.
	Exit string
	// ExitCode is the exit status, or -1 if a signal ended the process.
	ExitCode int
	// Signal is the name of the signal that ended the process, "SIGSEGV", or empty.
	Signal string
	// CoreDumped reports whether the kernel has written a core dump, or passed it to a
	// program.
	CoreDumped bool
	// OOM reports whether lack of memory may be the cause of the end. The kernel has counted
	// an out-of-memory kill in the process's cgroup, and the process ended by a SIGKILL that
	// this host did not send, or with a status, perhaps because its child was killed.
	OOM bool
	// Killed is the reason why this host killed the process, or empty.
	Killed string
	// Stack is the last Go panic, SIGQUIT dump, Python traceback or similar text that the
	// process printed, with the lines after it, at most 64 KiB. It is empty if the process
	// printed no such text.
	Stack string
	// StackTime is the time at which the process began to print Stack. If it is long before
	// the end, the process has survived the fault. It is zero if Stack is empty.
	StackTime time.Time
	// Output is the end of the output on descriptors 1 and 2, at most 64 KiB. Control
	// characters are not escaped. It includes lines that were not logged.
	Output []byte
	// Suppressed is the number of lines that were not logged, because there were too many.
	Suppressed uint64
	// PID is the id that the process had. Another process may have got the same id since.
	PID int
	// Started and Ended are the times of the start and the end.
	Started, Ended time.Time
	// UserTime and SystemTime are the CPU time of the process and of the children that it
	// waited for.
	UserTime, SystemTime time.Duration
	// MaxRSS is the highest resident memory, in bytes.
	MaxRSS int64
	// Variables are names of variables of the environment, for String and WriteTo. The
	// caller sets them.
	Variables []string
}

// Report returns a description of the end of the process. It is the zero Report before
// Done.
func (p *Process) Report() Report { return p.run.report() }

// Suppressed returns the number of lines that were not logged, because there were too
// many. It may be called while the plugin runs.
func (p *Process) Suppressed() uint64 { return p.run.out.suppressed() }

// Unprinted returns the number of the plugin's lines that did not reach the host's standard
// output, because the reader of that output had ended, or was too slow when the plugin
// ended. If that reader hangs, up to 64 KiB of these lines may still arrive. It may be called
// while the plugin runs.
func (p *Process) Unprinted() uint64 {
	if p.run.printed == nil {
		return 0
	}
	return p.run.printed.dropped.Load()
}

// report returns a description of the end of the process, and the zero Report before the end.
func (p *processRunner) report() Report {
	if !closed(p.child.done) || p.child.life.state == nil {
		return Report{}
	}
	state := p.child.life.state
	r := Report{
		ExitCode: state.ExitCode(),
		Output:   withoutHandshake(p.out.kept()),
		PID:      state.Pid(),
		Started:  p.child.life.started, Ended: p.child.life.over,
		UserTime: state.UserTime(), SystemTime: state.SystemTime(),
		MaxRSS:     maxRSS(state),
		Suppressed: p.out.suppressed(),
	}
	r.Stack, r.StackTime = p.out.keptStack()
	if status, ok := state.Sys().(syscall.WaitStatus); ok {
		why, dumped := p.child.killReason()
		r = r.withEnd(status, why, p.child.life.oom)
		if dumped && r.Killed == "" { // after SIGQUIT, a Go program ends with a status
			r.Killed = cmp.Or(why, "it was to print its stacks")
			r.Exit += " (by this host: " + r.Killed + ")"
		}
	}
	return r
}

// exit returns a description of the end of the process. If the process failed, it includes
// the last line of its output. It returns "" before the end.
func (p *processRunner) exit() string {
	if !closed(p.child.done) {
		return ""
	}
	if p.child.life.state == nil {
		return "not started"
	}
	exit := p.report().Exit
	if last := p.out.lastLine(); last != "" && !p.child.life.state.Success() {
		return exit + "; its last line: " + last
	}
	return exit
}

// withoutHandshake removes the handshake line from the printed output, and returns it.
func withoutHandshake(printed []byte) []byte {
	at := 0
	for line := range bytes.Lines(printed) {
		if _, ok := parseHandshake(strings.TrimSpace(string(line))); ok {
			return slices.Delete(printed, at, at+len(line))
		}
		at += len(line)
	}
	return printed
}

// withEnd returns r with the fields that describe the end of the process. why is the reason
// for which this host has killed the process, or empty. oom reports whether the kernel has
// counted an out-of-memory kill.
func (r Report) withEnd(status syscall.WaitStatus, why string, oom oomKills) Report {
	if !status.Signaled() {
		r.Exit = fmt.Sprintf("exit status %d", status.ExitStatus())
		if r.OOM = why == "" && oom == oomCounted; r.OOM {
			r.Exit += " (the kernel has counted an OOM kill in its cgroup: perhaps of a child process)"
		}
		return r
	}
	r.Signal, r.CoreDumped = unix.SignalName(status.Signal()), status.CoreDump()
	r.Exit = "signal: " + status.Signal().String()
	if r.CoreDumped {
		r.Exit += " (core dumped)"
	}
	switch {
	case status.Signal() != syscall.SIGKILL:
	case why != "":
		r.Killed = why
		r.Exit += " (by this host: " + why + ")"
	case oom == oomCounted:
		r.OOM = true
		r.Exit += " (out of memory: the kernel has counted an OOM kill in its cgroup)"
	case oom == oomNone:
		r.Exit += " (not by this host, and the kernel has counted no OOM kill in its cgroup)"
	default:
		r.Exit += " (not by this host; it may have been out of memory: look into the kernel's log)"
	}
	return r
}

// String returns the text that WriteTo writes.
func (r Report) String() string {
	var text strings.Builder
	_, _ = r.WriteTo(&text) // a strings.Builder returns no error
	return text.String()
}

// WriteTo writes the report as text: some lines, the stack and the end of the output. The text
// has at most a little more than 256 KiB. Control characters become visible. WriteTo returns
// the error of w.
func (r Report) WriteTo(w io.Writer) (int64, error) {
	var text bytes.Buffer
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-12s%s\n", name+":", printable.Text(value))
		}
	}
	line("exit", cmp.Or(r.Exit, "there was no process"))
	line("killed", r.Killed)
	if r.PID != 0 {
		line("process", strconv.Itoa(r.PID))
		line("started", r.Started.UTC().Format(time.RFC3339Nano))
		line("ended", fmt.Sprintf("%s, after %v", r.Ended.UTC().Format(time.RFC3339Nano), r.Ended.Sub(r.Started).Round(time.Millisecond)))
		line("CPU", fmt.Sprintf("%v in user mode, %v in the kernel", r.UserTime, r.SystemTime))
		line("memory", fmt.Sprintf("%.1f MiB resident at most", float64(r.MaxRSS)/(1<<20)))
	}
	line("variables", strings.Join(r.Variables, " "))
	if r.Suppressed > 0 {
		line("not logged", fmt.Sprintf("%d lines", r.Suppressed))
	}
	if r.Stack != "" {
		fmt.Fprintf(&text, "\nstack, begun %v before the end:\n%s", r.Ended.Sub(r.StackTime).Round(time.Millisecond), withLineBreak(printable.Lines(r.Stack)))
	}
	if len(r.Output) > 0 {
		fmt.Fprintf(&text, "\nthe last %d bytes of its output:\n%s", len(r.Output), withLineBreak(printable.Lines(string(r.Output))))
	}
	return text.WriteTo(w)
}

// withLineBreak returns text with a line break at its end.
func withLineBreak(text string) string { return strings.TrimSuffix(text, "\n") + "\n" }

// oomKills describes the out-of-memory kills that the kernel counted in the cgroup of a
// process while the process ran.
type oomKills int

const (
	oomUnknown oomKills = iota // the kernel's count cannot be read
	oomNone                    // there was no such kill
	oomCounted                 // there was such a kill, of this or another process
)
