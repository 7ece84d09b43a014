package host

import (
	"context"
	"log/slog"
	"time"
)

// note is a line for the log, made under the mutex and logged outside it.
type note struct {
	level slog.Level
	text  string
	args  []any
}

func (x *exporter) noteLocked(level slog.Level, text string, args ...any) {
	x.notes = append(x.notes, note{level, text, args})
}

// tell logs what was noted. It is deferred before the mutex is taken.
func (x *exporter) tell() {
	x.mu.Lock()
	notes := x.notes
	x.notes = nil
	x.mu.Unlock()
	for _, n := range notes {
		x.log.Log(context.Background(), n.level, n.text, n.args...)
	}
}

// trouble is what the log has been told of failing and losing, so that it hears
// of the beginning and of the end and not of every turn between.
type trouble struct {
	kind   string    // code of the failure last told; empty: none, or it is over
	losing bool      // it was told that spans are dropped
	lost   uint64    // spans dropped since trouble began
	last   time.Time // last failure or loss
	told   time.Time // when kind was told
}

// calm is how long all must have gone well for trouble to be over, and how long
// one kind of failure must have been told before another is.
const calm = 10 * time.Second

// failedLocked keeps an error for the status, and notes it when trouble begins
// or is of another kind.
func (x *exporter) failedLocked(now time.Time, kind, what, text string, args ...any) {
	t := &x.trouble
	if t.kind == "" || t.kind != kind && now.Sub(t.told) >= calm {
		x.noteLocked(slog.LevelWarn, what, append(args, "code", kind, "error", text)...)
		t.kind, t.told = kind, now
	}
	t.last = now
	x.plugin.lastError = text
}

// wellLocked notes the end of trouble.
func (x *exporter) wellLocked(now time.Time) {
	t := &x.trouble
	if t.kind == "" && !t.losing || now.Sub(t.last) < calm {
		return
	}
	x.noteLocked(slog.LevelInfo, "spans are delivered again", "dropped_meanwhile", t.lost)
	x.trouble = trouble{}
}
