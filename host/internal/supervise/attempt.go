package supervise

import (
	"context"
	"log/slog"
	"sync"
)

// attempt is one start of a plugin. It has the log of the plugin's output and of its
// remarks on its configuration. A plugin that cannot start prints the same lines at each
// start. So only the lines of the first start, and of the first start after a ready plugin,
// are logged at once. The lines of other starts are held back, and logged only if the start
// ends by a new cause.
type attempt struct {
	// log is the logger for the output of the process. It is used until the process
	// ends.
	log *slog.Logger

	mu      sync.Mutex
	holding bool
	held    []heldRecord // at most mostHeld
	passed  int          // number of lines beyond mostHeld, which are lost
}

// mostHeld bounds the number of lines that one start of a plugin can hold back.
const mostHeld = 100

type heldRecord struct {
	to     slog.Handler
	record slog.Record
}

func newAttempt(x *Plugin) *attempt {
	a := &attempt{}
	x.status.withLogMemory(func(m *logMemory) { a.holding = m.cause != "" })
	a.log = slog.New(attemptHandler{x.log.Handler(), a})
	return a
}

// hold keeps all further lines back until end is called. It is called before the
// process of a failed start is ended, so that the log has the cause before the last
// lines of the process.
func (a *attempt) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = true
}

// end logs all further lines at once. It also logs the lines that were held back if
// write is true, and drops them otherwise.
func (a *attempt) end(write bool) {
	a.mu.Lock()
	held, passed := a.held, a.passed
	a.held, a.passed, a.holding = nil, 0, false
	a.mu.Unlock()
	if !write {
		return
	}
	for _, h := range held {
		_ = h.to.Handle(context.Background(), h.record) // slog.Logger ignores the error, too
	}
	if passed > 0 {
		a.log.Warn("plugin printed more lines than are logged", "suppressed", passed)
	}
}

// keep holds a record back. It returns false if the caller must log the record now.
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

// attemptHandler passes records to the slog.Handler that it embeds, unless the attempt
// holds them back.
type attemptHandler struct {
	slog.Handler
	a *attempt
}

// Handle holds the record, or passes it on.
func (h attemptHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.a.keep(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler with attributes. Its records belong to the same attempt.
func (h attemptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return attemptHandler{h.Handler.WithAttrs(attrs), h.a}
}

// WithGroup returns a handler with a group. Its records belong to the same attempt.
func (h attemptHandler) WithGroup(name string) slog.Handler {
	return attemptHandler{h.Handler.WithGroup(name), h.a}
}
