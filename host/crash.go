package host

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// How much of a crash goes into its line of the log. The file has all.
const (
	headLines = 12 // of the stack
	lastLines = 5  // of the output
	headBytes = 2 << 10
)

// crashed tells of a process that crashed: in the log, where it differs from
// the last, and in a file, where files are kept. cause is the whole of it in
// words. A plugin that is attached to has no process of ours, and no report.
func (x *exporter) crashed(p plan, d description, r launch.Report, cause error, atCrash []string) {
	if r.Exit == "" {
		return
	}
	defer x.tell()
	now := time.Now()
	text := crashText(x, p, d, r, cause, atCrash)
	x.mu.Lock()
	defer x.mu.Unlock()
	path, err := x.host.keeper.keepReport(x.entry.name, now, r.PID, text)
	if err != nil {
		x.noteLocked(slog.LevelError, notKept, "error", err)
	}
	// A plugin that crashes for ever does so in the same way.
	stack, last := headOf(r.Stack, headLines), tailOf(r.Output, lastLines)
	args := []any{"exit", r.Exit, "stack", stack, "last_lines", last}
	level, told := slog.LevelError, r.Exit+withoutNumbers(stack+"\n"+last, isNothing)
	if told == x.plugin.loggedCrash || x.plugin.crashesTold >= mostCauses {
		level = slog.LevelDebug
	}
	x.plugin.loggedCrash = told
	x.plugin.crashesTold++
	x.plugin.crashTold = true
	args = append(args, "pid", r.PID, "lived", r.Ended.Sub(r.Started).Round(time.Millisecond), "batches_without_answer", len(atCrash))
	if path != "" {
		args = append(args, "report", path)
	}
	x.noteLocked(level, "plugin has crashed", args...)
}

// headOf gives the first lines of a text, tailOf the last that are not empty.
// Both cut what is longer than headBytes.
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

// crashText is the file of a crash: of what plugin, with which batches in hand,
// and the report of the process with the names of its variables.
func crashText(x *exporter, p plan, d description, r launch.Report, cause error, atCrash []string) []byte {
	var b bytes.Buffer
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s%s\n", name+":", value)
		}
	}
	line("plugin", x.entry.name)
	line("path", p.path)
	line("pinned to", digestText(x.entry.digest))
	line("says it is", strings.TrimSpace(wire.Clip(d.about.GetName())+" "+wire.Clip(d.about.GetVersion())))
	line("sdk", sdkText(d.about))
	line("host", version()+", instance "+x.host.instance)
	line("cause", wire.Clip(cause.Error()))
	line("had", cmp.Or(strings.Join(atCrash, " "), "no batch without an answer"))
	r.Variables = variableNames(p, d)
	_, _ = r.WriteTo(&b) // a Buffer takes all
	return b.Bytes()
}

// variableNames are those that the process had, never their values.
func variableNames(p plan, d description) []string {
	names := sortedKeys(d.granted)
	for _, pair := range p.environ {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
