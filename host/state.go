package host

import (
	"errors"
	"log/slog"
	"slices"
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
	// StateBroken: crashed by its own fault, too often in too short a time; tried
	// again after half of Config.MaxAge, or a minute if that is less, and by
	// Reload.
	StateBroken
	// StateIncompatible: speaks another version, is of another kind or built
	// for another machine; tried again when its file changes, and by Reload. One
	// that is attached to is tried again after a pause.
	StateIncompatible
	// StateUntrusted: not what its pin says, or others may write to it, or it
	// runs as somebody else; tried again when its file changes, and by Reload. One
	// that is attached to is tried again after a pause.
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
	StateDegraded:     {"degraded", slog.LevelInfo, "plugin is degraded: it runs and does not deliver, or does not answer; requests are not affected"},
	StateBackingOff:   {"backing-off", slog.LevelError, "plugin is not running and is started again with growing pauses; requests are not affected"},
	StateBroken:       {"broken", slog.LevelError, "plugin is broken: it crashes too often, and is tried after half of " + EnvMaxAge + " only, or a minute; SIGHUP tries it at once; requests are not affected"},
	StateIncompatible: {"incompatible", slog.LevelError, "plugin is incompatible and is not tried again until its file changes, or SIGHUP; requests are not affected"},
	StateUntrusted:    {"untrusted", slog.LevelError, "plugin is not trusted and is not run until that is mended, or SIGHUP; requests are not affected"},
	StateDraining:     {"draining", slog.LevelDebug, "plugin is draining"},
	StateStopped:      {"stopped", slog.LevelDebug, "plugin has stopped"},
}

// attachedText is what the log says instead of a plugin that is attached to.
var attachedText = map[State]string{
	StateBackingOff:   "plugin can not be reached at its socket, which is tried again with growing pauses; requests are not affected",
	StateIncompatible: "plugin that listens at its socket is incompatible; the socket is tried again with growing pauses; requests are not affected",
	StateUntrusted:    "plugin that listens at its socket is not trusted and gets no span; the socket is tried again with growing pauses; requests are not affected",
}

// String is the state's name in logs, metrics and on the status page.
func (s State) String() string { return stateInfo[s].name }

// running tells whether there is a process, or a connection.
func (s State) running() bool { return s == StateReady || s == StateDegraded || s == StateDraining }

// moves are the changes that there may be, besides to draining and from there
// to stopped, which come whatever the state is. A plugin that is replaced goes
// from ready to ready, and so may one that is degraded.
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

// mayBecome tells whether a plugin may go from s to the other state.
func (s State) mayBecome(to State) bool {
	return to == StateDraining && s != StateStopped && s != StateDraining || slices.Contains(moves[s], to)
}

// setState is setStateLocked for those who do not hold the mutex.
func (x *exporter) setState(to State, cause string) {
	defer x.tell()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setStateLocked(to, cause)
}

// setStateLocked moves the plugin to another state: the only place that does.
// cause says why, where the state does not; args go into the line of the log.
// While the host shuts down there is no way back, but causes count.
func (x *exporter) setStateLocked(to State, cause string, args ...any) {
	p := &x.plugin
	from := p.state
	ending := from == StateDraining || from == StateStopped
	switch {
	case from.mayBecome(to):
		p.state, p.cause, p.since = to, cause, time.Now()
	case !ending: // a fault of this package, which must not stay hidden
		x.noteLocked(slog.LevelError, "plugin can not change its state so; please report this", "from", from.String(), "to", to.String())
		return
	case to.running() || to == StateStarting:
		return
	}
	if !to.running() {
		p.pid = 0
	}
	if cause != "" {
		p.failLocked(time.Now(), cause)
	}
	if to == StateDraining {
		x.hurryLocked()
	}
	x.tellStateLocked(to, cause, args)
}

// mostCauses of ends and failed starts are told until a plugin is steady again.
const mostCauses = 8

// tellStateLocked notes a change for the log. A plugin that is tried for ever
// ends by the same cause each time, or by one that differs in a number: the
// same is told once, and so many are.
func (x *exporter) tellStateLocked(to State, cause string, args []any) {
	p := &x.plugin
	info := stateInfo[to]
	level, text := info.level, info.text
	if other, ok := attachedText[to]; ok && x.entry.attached {
		text = other
	}
	switch {
	case cause == "":
	case to == StateDegraded: // of which another line tells
		args = append([]any{"waiting_spans", x.waiting}, args...)
	default:
		args = append([]any{"cause", cause, "waiting_spans", x.waiting}, args...)
	}
	if to == StateBackingOff && p.crashTold {
		level = slog.LevelWarn // the crash itself was the error
	}
	p.crashTold = false
	switch {
	case cause != "" && !to.running():
		if x.toldLocked(to, cause) {
			level = slog.LevelDebug
			break
		}
		p.loggedCause = causeText(to, cause)
		p.causes[to]++
	case to == StateReady && p.unsteady: // so many are told too
		if p.causes[to] >= mostCauses {
			level = slog.LevelDebug
			break
		}
		p.causes[to]++
	}
	x.noteLocked(level, text, args...)
}

// toldLocked tells whether the log has heard enough of this end already.
func (x *exporter) toldLocked(to State, cause string) bool {
	return causeText(to, cause) == x.plugin.loggedCause || x.plugin.causes[to] >= mostCauses
}

// causeText is what tells one cause from another: not a random name in it.
func causeText(to State, cause string) string {
	return to.String() + ":" + withoutNumbers(cause, isShort)
}

// degradeLocked is for a plugin that takes batches and does not deliver them, or
// does not answer. What else it is, it stays.
func (x *exporter) degradeLocked(cause string) {
	x.plugin.failed = time.Now()
	if x.plugin.state == StateReady {
		x.setStateLocked(StateDegraded, cause)
	}
}

// setUnusable notes whether the plugin cannot be run before somebody has mended
// something: its file, its pin, or its path.
func (x *exporter) setUnusable(unusable bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.plugin.unusable = unusable
	x.changed.Broadcast()
}

// needsMending reports whether a further start fails as well unless somebody mends
// what err tells of.
func needsMending(state State, err error) bool {
	if state == StateIncompatible || state == StateUntrusted || errors.Is(err, errNowhere) {
		return true
	}
	failed, ok := errors.AsType[*launch.Error](err)
	return ok && (failed.Reason == launch.ReasonNotFound || failed.Reason == launch.ReasonNotExecutable)
}

// degraded tells whether the plugin takes batches and does not deliver them.
func (x *exporter) degraded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.plugin.state == StateDegraded
}

// deliversLocked is for one that has delivered: it is well when no call has
// failed for long. What its back end rejects of a batch is not the plugin's.
func (x *exporter) deliversLocked(now time.Time) {
	if now.Sub(x.plugin.failed) >= calm {
		x.restoreLocked()
	}
}

// restoreLocked is for one that does again.
func (x *exporter) restoreLocked() {
	x.plugin.silent = false
	if x.plugin.state == StateDegraded {
		x.setStateLocked(StateReady, "", "again", true)
	}
}

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
	switch {
	case failed.Incompatible():
		return StateIncompatible
	case failed.Untrusted():
		return StateUntrusted
	}
	return StateBackingOff
}
