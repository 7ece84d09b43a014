package host

import (
	"github.com/servetrace/servetrace/host/internal/supervise"
)

// State is the state of a plugin. Its String is the state's name in logs, metrics and on
// the status page.
type State = supervise.State

// The states. Later versions may add states.
const (
	// StateStarting means that the plugin is being launched or dialled, described or
	// configured.
	StateStarting = supervise.StateStarting
	// StateReady means that the plugin takes batches.
	StateReady = supervise.StateReady
	// StateDegraded means that the plugin takes batches and does not deliver them, or does
	// not answer health checks.
	StateDegraded = supervise.StateDegraded
	// StateBackingOff means that the plugin ended, did not start, or cannot be reached. It
	// is tried again after a pause.
	StateBackingOff = supervise.StateBackingOff
	// StateBroken means that the plugin crashed too often in too short a time, by its own
	// fault. It is tried again after half of Config.MaxAge, or a minute if that is less, and
	// by Reload.
	StateBroken = supervise.StateBroken
	// StateIncompatible means that the plugin has another protocol version, is of another
	// kind, or is built for another kind of machine. It is tried again when its file
	// changes, and by Reload. An attached plugin is tried again after a pause.
	StateIncompatible = supervise.StateIncompatible
	// StateUntrusted means that the plugin's file does not match its pin, that other users
	// may write to it, or that it runs as another user. It is tried again when its file
	// changes, and by Reload. An attached plugin is tried again after a pause.
	StateUntrusted = supervise.StateUntrusted
	// StateDraining means that the host shuts down, or that the entry has left the list. The
	// remaining spans are being sent.
	StateDraining = supervise.StateDraining
	// StateStopped means that the plugin has ended.
	StateStopped = supervise.StateStopped
)
