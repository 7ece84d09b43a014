package host

import (
	"github.com/servetrace/servetrace/host/internal/supervise"
)

// State is the state of a plugin. Its String is the state's name in logs, metrics and on
// the status page.
type State = supervise.State

// The states. More may come.
const (
	// StateStarting: it is launched or dialled, described or configured.
	StateStarting = supervise.StateStarting
	// StateReady: takes batches.
	StateReady = supervise.StateReady
	// StateDegraded: takes batches and does not deliver them, or misses health
	// checks.
	StateDegraded = supervise.StateDegraded
	// StateBackingOff: it ended, did not start, or cannot be reached; tried again
	// after a pause.
	StateBackingOff = supervise.StateBackingOff
	// StateBroken: crashed by its own fault, too often in too short a time; tried
	// again after half of Config.MaxAge, or a minute if that is less, and by
	// Reload.
	StateBroken = supervise.StateBroken
	// StateIncompatible: has another protocol version, is of another kind or built for
	// another machine; tried again when its file changes, and by Reload. A plugin that
	// is attached to is tried again after a pause.
	StateIncompatible = supervise.StateIncompatible
	// StateUntrusted: its file does not match its pin, or other users may write to it,
	// or it runs as another user; tried again when its file changes, and by Reload. A
	// plugin that is attached to is tried again after a pause.
	StateUntrusted = supervise.StateUntrusted
	// StateDraining: the host shuts down, or the entry has left the list; the rest of
	// the spans is sent.
	StateDraining = supervise.StateDraining
	// StateStopped: over.
	StateStopped = supervise.StateStopped
)

// PluginError is Reload's error for one plugin, which the Host has logged. Plugin is its
// name in the list. Op is the result: the plugin does not start, or is not replaced. Err
// is the reason. It is never nil, and Unwrap returns it.
type PluginError = supervise.PluginError
