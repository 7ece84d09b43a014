package supervise

import (
	"context"
	"log/slog"
	"sync"
)

// startLog logs the output of one life of a plugin, and the plugin's remarks on its
// configuration. A plugin that cannot start prints the same lines at each start. So only
// the lines of the first start, and of the first start after a ready plugin, are logged at
// once. The lines of other starts are held back, and logged only if the start ends by a new
// cause.
type startLog struct {
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

func newStartLog(x *Plugin) *startLog {
	s := &startLog{}
	x.status.withLogMemory(func(m *logMemory) { s.holding = m.cause != "" })
	s.log = slog.New(startHandler{x.log.Handler(), s})
	return s
}

// hold keeps all further lines back until writeHeld or dropHeld is called. It is called
// before the process of a failed start is ended, so that the log has the cause before the
// last lines of the process.
func (s *startLog) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
}

// writeHeld logs the lines that were held back. Further lines are logged at once.
func (s *startLog) writeHeld() {
	held, passed := s.take()
	for _, h := range held {
		_ = h.to.Handle(context.Background(), h.record) // slog.Logger ignores the error, too
	}
	if passed > 0 {
		s.log.Warn("plugin printed more lines than are logged", "suppressed", passed)
	}
}

// dropHeld drops the lines that were held back. Further lines are logged at once.
func (s *startLog) dropHeld() { s.take() }

// take ends the holding, and returns the lines that were held back.
func (s *startLog) take() (held []heldRecord, passed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, passed = s.held, s.passed
	s.held, s.passed, s.holding = nil, 0, false
	return held, passed
}

// keep holds a record back. It returns false if the caller must log the record now.
func (s *startLog) keep(to slog.Handler, r slog.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.holding:
		return false
	case len(s.held) < mostHeld:
		s.held = append(s.held, heldRecord{to, r.Clone()})
	default:
		s.passed++
	}
	return true
}

// startHandler passes records to the slog.Handler that it embeds, unless the startLog
// holds them back.
type startHandler struct {
	slog.Handler
	start *startLog
}

// Handle holds the record, or passes it on.
func (h startHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.start.keep(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler with attributes. Its records belong to the same start.
func (h startHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return startHandler{h.Handler.WithAttrs(attrs), h.start}
}

// WithGroup returns a handler with a group. Its records belong to the same start.
func (h startHandler) WithGroup(name string) slog.Handler {
	return startHandler{h.Handler.WithGroup(name), h.start}
}
