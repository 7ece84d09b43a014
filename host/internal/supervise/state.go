package supervise

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/internal/launch"
)

// State is the state of a plugin.
type State int

// The states. Package host documents them.
const (
	StateStarting State = iota
	StateReady
	StateDegraded
	StateBackingOff
	StateBroken
	StateIncompatible
	StateUntrusted
	StateDraining
	StateStopped

	stateCount
)

// stateInfo is the name of a state, and the log line for a plugin that enters it.
var stateInfo = [stateCount]struct {
	name  string
	level slog.Level
	text  string
}{
	StateStarting:     {"starting", slog.LevelDebug, "plugin is starting"},
	StateReady:        {"ready", slog.LevelInfo, "plugin is ready"},
	StateDegraded:     {"degraded", slog.LevelInfo, "plugin is degraded: it runs and does not deliver, or does not answer; the program is not affected"},
	StateBackingOff:   {"backing-off", slog.LevelError, "plugin is not running and is started again with growing pauses; the program is not affected"},
	StateBroken:       {"broken", slog.LevelError, "plugin is broken: it crashes too often, and is tried after half of " + EnvMaxAge + " only, or a minute; SIGHUP tries it at once; the program is not affected"},
	StateIncompatible: {"incompatible", slog.LevelError, "plugin is incompatible and is not tried again until its file changes, or SIGHUP; the program is not affected"},
	StateUntrusted:    {"untrusted", slog.LevelError, "plugin is not trusted and is not run until that is corrected; SIGHUP checks again at once; the program is not affected"},
	StateDraining:     {"draining", slog.LevelDebug, "plugin is draining"},
	StateStopped:      {"stopped", slog.LevelDebug, "plugin has stopped"},
}

var attachedText = map[State]string{
	StateBackingOff:   "plugin cannot be reached at its socket, which is tried again with growing pauses; the program is not affected",
	StateIncompatible: "plugin that listens at its socket is incompatible; the socket is tried again with growing pauses; the program is not affected",
	StateUntrusted:    "plugin that listens at its socket is not trusted and gets no span; the socket is tried again with growing pauses; the program is not affected",
}

// String returns the state's name in logs, metrics and on the status page.
func (s State) String() string { return stateInfo[s].name }

// running reports whether there is a process or a connection.
func (s State) running() bool { return s == StateReady || s == StateDegraded || s == StateDraining }

// moves are the allowed changes of the state, except the change to draining, which is
// allowed in any earlier state. A plugin that is replaced changes from ready or degraded to
// ready.
var moves = [stateCount][]State{
	StateStarting:     {StateStarting, StateReady, StateBackingOff, StateBroken, StateIncompatible, StateUntrusted},
	StateReady:        {StateReady, StateDegraded, StateStarting, StateBackingOff, StateBroken},
	StateDegraded:     {StateReady, StateStarting, StateBackingOff, StateBroken},
	StateBackingOff:   {StateStarting},
	StateBroken:       {StateStarting},
	StateIncompatible: {StateStarting},
	StateUntrusted:    {StateStarting},
	StateDraining:     {StateStopped},
	StateStopped:      {},
}

func (s State) mayBecome(to State) bool {
	return to == StateDraining && s != StateStopped && s != StateDraining || slices.Contains(moves[s], to)
}

// errIncompatible marks an error that needs another version of the plugin or the host.
var errIncompatible = errors.New("incompatible")

// stateAfter returns the state of a plugin whose start or process ended with err.
func stateAfter(err error) State {
	failed, ok := errors.AsType[*launch.Error](err)
	switch {
	case errors.Is(err, errIncompatible), ok && failed.Incompatible():
		return StateIncompatible
	case ok && failed.Untrusted():
		return StateUntrusted
	}
	return StateBackingOff
}

// needsMending reports whether further starts fail until an operator removes the cause.
func needsMending(state State, err error) bool {
	if _, ok := errors.AsType[configurationError](err); ok || state == StateIncompatible || state == StateUntrusted || errors.Is(err, pluginlist.ErrNowhere) {
		return true
	}
	failed, ok := errors.AsType[*launch.Error](err)
	return ok && (failed.Reason == launch.ReasonNotFound || failed.Reason == launch.ReasonNotExecutable)
}
