package host

import (
	"context"
	"log/slog"
	"sync"
)

// attempt is one try to have the plugin ready, and its log: what the plugin
// prints, and remarks on its configuration. A plugin that can not start is
// tried for ever, and says the same each time. So the first try, and the first
// after a plugin that was ready, logs at once; what a later one says is held
// until it is known whether it ends by another cause than the last.
type attempt struct {
	// log is for all that belongs to this try, and to the process's life after.
	log *slog.Logger

	mu      sync.Mutex
	holding bool
	held    []heldRecord // at most mostHeld
	passed  int          // lines beyond that
}

// mostHeld is how many lines of one attempt are held.
const mostHeld = 100

type heldRecord struct {
	to     slog.Handler
	record slog.Record
}

func (x *exporter) newAttempt() *attempt {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := &attempt{holding: x.plugin.loggedCause != ""}
	a.log = slog.New(attemptHandler{x.log.Handler(), a})
	return a
}

// told tells whether the log has heard of the cause by which an attempt ends, and
// with it of what the plugin said.
func (x *exporter) told(to State, cause error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return cause != nil && x.toldLocked(to, cause.Error())
}

// hold holds what the process says from now on until the end of the attempt: the
// host is about to end it, and the log is to have the cause first.
func (a *attempt) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = true
}

// end ceases to hold, and logs what was held if tell.
func (a *attempt) end(tell bool) {
	a.mu.Lock()
	held, passed := a.held, a.passed
	a.held, a.passed, a.holding = nil, 0, false
	a.mu.Unlock()
	if !tell {
		return
	}
	for _, h := range held {
		_ = h.to.Handle(context.Background(), h.record) // as slog.Logger does
	}
	if passed > 0 {
		a.log.Warn("plugin printed more lines than are logged", "suppressed", passed)
	}
}

// keep takes a record while the attempt holds.
func (a *attempt) keep(to slog.Handler, r slog.Record) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.holding:
		return false
	case len(a.held) < mostHeld:
		a.held = append(a.held, heldRecord{to, r.Clone()})
	default:
		a.passed++
	}
	return true
}

// attemptHandler is the log's handler with an attempt in front.
type attemptHandler struct {
	slog.Handler
	a *attempt
}

// Handle keeps the record, or passes it on.
func (h attemptHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.a.keep(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is the same attempt with attributes.
func (h attemptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return attemptHandler{h.Handler.WithAttrs(attrs), h.a}
}

// WithGroup is the same attempt with a group.
func (h attemptHandler) WithGroup(name string) slog.Handler {
	return attemptHandler{h.Handler.WithGroup(name), h.a}
}
