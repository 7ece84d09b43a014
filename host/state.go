package host

import (
	"errors"
	"log/slog"
	"time"

	"github.com/servetrace/servetrace/internal/launch"
)

// State is where a plugin is in its life.
type State int

// The states. More may come.
const (
	// StateStarting: being launched or dialled, described or configured.
	StateStarting State = iota
	// StateReady: takes batches.
	StateReady
	// StateDegraded: takes batches and does not deliver them, or misses health
	// checks.
	StateDegraded
	// StateBackingOff: ended or did not start, or can not be reached; tried
	// again after a pause.
	StateBackingOff
	// StateBroken: crashed too often in too short a time; tried again once a
	// minute, and by Reload.
	StateBroken
	// StateIncompatible: speaks another version, is of another kind or built
	// for another machine; tried again when its file changes, and by Reload.
	StateIncompatible
	// StateUntrusted: not what its pin says, or others may write to it, or it
	// runs as somebody else; tried again when its file changes, and by Reload.
	StateUntrusted
	// StateDraining: the host shuts down, or the entry has left the list; what
	// is left is being sent.
	StateDraining
	// StateStopped: over.
	StateStopped

	stateCount
)

// stateInfo is how a state is called, and what the log says when a plugin comes
// into it.
var stateInfo = [stateCount]struct {
	name  string
	level slog.Level
	text  string
}{
	StateStarting:     {"starting", slog.LevelDebug, "plugin is starting"},
	StateReady:        {"ready", slog.LevelInfo, "plugin is ready"},
	StateDegraded:     {"degraded", slog.LevelWarn, "plugin is degraded: it runs and does not deliver; its batches are sent again; requests are not affected"},
	StateBackingOff:   {"backing-off", slog.LevelError, "plugin is not running and is started again with growing pauses; requests are not affected"},
	StateBroken:       {"broken", slog.LevelError, "plugin is broken: it crashes too often and is tried once a minute only; SIGHUP tries it at once; requests are not affected"},
	StateIncompatible: {"incompatible", slog.LevelError, "plugin is incompatible and is not tried again until its file changes, or SIGHUP; requests are not affected"},
	StateUntrusted:    {"untrusted", slog.LevelError, "plugin is not trusted and is not run until that is mended, or SIGHUP; requests are not affected"},
	StateDraining:     {"draining", slog.LevelDebug, "plugin is draining"},
	StateStopped:      {"stopped", slog.LevelDebug, "plugin has stopped"},
}

// attachedText is what the log says instead of a plugin that is attached to.
var attachedText = map[State]string{
	StateBackingOff: "plugin can not be reached at its socket, which is tried again with growing pauses; requests are not affected",
}

// String is the state's name in logs, metrics and on the status page.
func (s State) String() string { return stateInfo[s].name }

// running tells whether there is a process, or a connection.
func (s State) running() bool { return s == StateReady || s == StateDegraded || s == StateDraining }

// setState is setStateLocked for those who do not hold the mutex.
func (x *exporter) setState(to State, cause string, args ...any) {
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setStateLocked(to, cause, args...)
}

// setStateLocked moves the plugin to another state: the only place that does.
// cause says why, where the state does not; args go into the line of the log.
// While the host shuts down there is no way back, but causes count.
func (x *exporter) setStateLocked(to State, cause string, args ...any) {
	p := &x.plugin
	if !to.running() {
		p.pid = 0
	}
	if cause != "" {
		p.lastError = cause
	}
	if (p.state == StateDraining && to != StateStopped) || p.state == StateStopped {
		x.tellCauseLocked(to, cause, args)
		return
	}
	if p.state == to && p.cause == cause && to != StateStarting {
		return
	}
	p.state, p.cause, p.since = to, cause, time.Now()
	x.tellCauseLocked(to, cause, args)
}

// tellCauseLocked notes a change for the log. A plugin that is tried for ever
// ends by the same cause each time: it is told once.
func (x *exporter) tellCauseLocked(to State, cause string, args []any) {
	info := stateInfo[to]
	level, text := info.level, info.text
	if other, ok := attachedText[to]; ok && x.entry.attached {
		text = other
	}
	if cause != "" {
		args = append([]any{"cause", cause, "waiting_spans", x.waiting}, args...)
	}
	if cause != "" && !to.running() {
		told := causeText(to, cause)
		if told == x.plugin.loggedCause {
			level = slog.LevelDebug
		}
		x.plugin.loggedCause = told
	}
	x.noteLocked(level, text, args...)
}

// causeText is what tells one cause from another.
func causeText(to State, cause string) string { return to.String() + ": " + cause }

// errIncompatible marks what a plugin of another version would mend.
var errIncompatible = errors.New("incompatible")

// stateAfter is the state of a plugin that did not start, or ended, with err.
func stateAfter(err error) State {
	var failed *launch.Error
	switch {
	case errors.Is(err, errIncompatible):
		return StateIncompatible
	case !errors.As(err, &failed):
		return StateBackingOff
	}
	switch failed.Reason {
	case launch.ReasonVersion, launch.ReasonArchitecture:
		return StateIncompatible
	case launch.ReasonPeer:
		return StateUntrusted
	}
	return StateBackingOff
}
