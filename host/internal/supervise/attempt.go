package supervise

import (
	"context"
	"log/slog"
	"sync"
)

// attempt is one start of a plugin, and its log: the plugin's output, and its remarks
// on its configuration. A plugin that cannot start is tried without end, and prints the
// same lines each time. So only two starts log at once: the first start, and the first
// start after the plugin was ready. The lines of a later start are held until the start
// has ended. They are logged only if its cause is new.
type attempt struct {
	// log is for this start and the life of the process.
	log *slog.Logger

	mu      sync.Mutex
	holding bool
	held    []heldRecord // at most mostHeld
	passed  int          // lines beyond that
}

// mostHeld bounds the lines of one attempt that are held.
const mostHeld = 100

type heldRecord struct {
	to     slog.Handler
	record slog.Record
}

func newAttempt(x *Plugin) *attempt {
	a := &attempt{}
	x.status.tell(func(t *told) { a.holding = t.cause != "" })
	a.log = slog.New(attemptHandler{x.log.Handler(), a})
	return a
}

// hold holds all further lines until the end of the attempt. The host is about to end
// the process, and the log must show the cause first.
func (a *attempt) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = true
}

// end stops holding. It logs the held lines if tell is set.
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

// keep holds a record. It returns false if the attempt no longer holds records.
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

// attemptHandler is a log handler that passes each record through its attempt first.
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

// WithAttrs returns a handler of the same attempt with attributes.
func (h attemptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return attemptHandler{h.Handler.WithAttrs(attrs), h.a}
}

// WithGroup returns a handler of the same attempt with a group.
func (h attemptHandler) WithGroup(name string) slog.Handler {
	return attemptHandler{h.Handler.WithGroup(name), h.a}
}
