package supervise

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// crash is the error of a process that ended although the host had not asked for it,
// was killed because it did not answer, or did not become a plugin.
type crash struct {
	err error
	// blameless is true if the end of the process is not a fault of the plugin's code.
	// See endedByOthers.
	blameless bool
}

func (c *crash) Error() string { return c.err.Error() }
func (c *crash) Unwrap() error { return c.err }

// endedByOthers reports whether a ready process ended without a fault of its code: by a
// signal from another process, or with status 0. A process that handles such a signal
// often exits with status 0. A kill for lack of memory is a fault of the plugin, also if
// only a child process was killed and the plugin then ended with status 0.
func endedByOthers(r launch.Report) bool {
	inOrder := r.Exit != "" && r.Signal == "" && r.ExitCode == 0 && r.Killed == "" && !r.OOM
	return inOrder || !mayBeToBlame(r)
}

// mayBeToBlame reports whether a process itself may have caused its end. It returns
// false for a signal such as SIGTERM from another process. It returns true for a kill by
// this host, or by the kernel for lack of memory.
func mayBeToBlame(r launch.Report) bool {
	if r.Killed != "" || r.OOM {
		return true
	}
	switch r.Signal {
	case "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP":
		return false
	}
	return true
}

// These are bounds of the log line of a crash. The crash file has the whole report.
const (
	headLines = 12 // lines of the stack
	lastLines = 5  // lines of the output
	headBytes = 2 << 10
)

// reportCrash writes a crash to the log, and to a file if Settings.CrashDir is set. A
// crash like the previous crash is logged at debug level. cause is the error of the end.
// It does nothing for an attached plugin, which has no report.
func (l *life) reportCrash(r launch.Report, cause error) {
	if r.Exit == "" {
		return
	}
	x, status := l.x, l.x.status
	defer status.failures.Write()
	var ids []string
	if l.sender != nil {
		ids = l.sender.verdict.IDs
	}
	path, err := x.sup.crashFiles.keepReport(x.Entry.Name, time.Now(), r.PID, crashText(x, l.plan, l.described, r, cause, ids))
	if err != nil {
		status.failures.Note(slog.LevelError, notKept, "error", err)
	}
	stack, last := headOf(r.Stack, headLines), tailOf(r.Output, lastLines)
	var level slog.Level
	status.withLogMemory(func(m *logMemory) {
		level = m.levelOfCrash(r.Exit + failures.WithoutNumbers(stack+"\n"+last, failures.IsNothing))
	})
	args := []any{"exit", r.Exit, "stack", stack, "last_lines", last,
		"pid", r.PID, "lived", r.Ended.Sub(r.Started).Round(time.Millisecond), "batches_without_answer", len(ids)}
	if path != "" {
		args = append(args, "report", path)
	}
	status.failures.Note(level, "plugin has crashed", args...)
}

// headOf returns the first lines of a text. tailOf returns the last lines, and ignores
// empty lines at the end. Both return at most headBytes.
func headOf(text string, lines int) string {
	list := strings.SplitN(text, "\n", lines+1)
	head := strings.Join(list[:min(lines, len(list))], "\n")
	return strings.ToValidUTF8(head[:min(len(head), headBytes)], "\ufffd")
}

func tailOf(output []byte, lines int) string {
	output = bytes.TrimSpace(output)
	output = output[max(0, len(output)-headBytes):]
	list := strings.Split(strings.ToValidUTF8(string(output), "\ufffd"), "\n")
	return strings.Join(list[max(0, len(list)-lines):], "\n")
}

// crashText returns the content of a crash file: the plugin, the ids of the batches
// without an answer, the report of the process, and the names of its variables.
func crashText(x *Plugin, p Plan, d Description, r launch.Report, cause error, ids []string) []byte {
	var b bytes.Buffer
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s%s\n", name+":", value)
		}
	}
	line("plugin", x.Entry.Name)
	line("path", p.Path)
	line("function", p.Function)
	line("pinned to", DigestText(x.Entry.Digest))
	line("name and version", strings.TrimSpace(wire.Clip(d.About.GetName())+" "+wire.Clip(d.About.GetVersion())))
	line("sdk", SdkText(d.About))
	line("host", wire.ModuleVersion()+", instance "+x.sup.pipeline.Instance)
	line("cause", wire.Clip(cause.Error()))
	line("had", cmp.Or(strings.Join(ids, " "), "no batch without an answer"))
	r.Variables = variableNames(p, d)
	_, _ = r.WriteTo(&b) // writing to a Buffer never fails
	return b.Bytes()
}

// variableNames returns the names of the process's variables, without their values,
// which may be secret.
func variableNames(p Plan, d Description) []string {
	names := slices.Sorted(maps.Keys(d.Granted))
	for _, pair := range p.Environ {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// DigestText returns a digest of 32 bytes as "sha256:" and 64 hexadecimal digits, or "" for
// an empty digest.
func DigestText(digest string) string {
	if digest == "" {
		return ""
	}
	return strings.TrimPrefix(pluginlist.PinMark, "@") + hex.EncodeToString([]byte(digest))
}
