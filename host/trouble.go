package host

import (
	"context"
	"log/slog"
	"maps"
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
// of the beginning, of each new kind, of how it goes on now and then, and of the
// end, but not of every turn between. The zero value is no trouble.
type trouble struct {
	kinds    map[string]bool   // codes of failures that cost no span so far
	rejected map[string]uint64 // spans lost since trouble began, by code
	dropped  map[string]uint64 // the same by the host's reason
	last     time.Time         // last failure or loss
	count    time.Time         // from then on the next loss tells the counts
	pause    time.Duration     // between two such lines
}

// calm is how long all must have gone well for trouble to be over.
const calm = 10 * time.Second

// mostKinds of failures without a loss are told of one trouble, as many of
// spans rejected, and as many of spans dropped.
const mostKinds = 8

// The first and the longest pause between two lines with the counts of what is
// being lost; each is twice the one before.
const (
	countFirst = 10 * time.Second
	countMost  = 5 * time.Minute
)

// failedLocked keeps an error that cost no span, for the status, and notes it
// the first time that it is of its kind.
func (x *exporter) failedLocked(now time.Time, kind, what, text string) {
	t := &x.trouble
	if !t.kinds[kind] && len(t.kinds) < mostKinds {
		x.noteLocked(slog.LevelWarn, what, "code", kind, "error", text)
		if t.kinds == nil {
			t.kinds = map[string]bool{}
		}
		t.kinds[kind] = true
	}
	t.last = now
	x.plugin.lastError = text
}

// rejectedLocked books spans as rejected, and tells it.
func (x *exporter) rejectedLocked(now time.Time, code string, spans uint64, what, text string) {
	x.books.rejected[code] += spans
	x.plugin.lastError = text
	if lose(&x.trouble.rejected, code, spans) {
		x.noteLocked(slog.LevelWarn, what, "spans", spans, "code", code, "error", text)
	}
	x.countLocked(now)
}

// droppedLocked books spans as dropped, and tells it.
func (x *exporter) droppedLocked(now time.Time, spans uint64, why reason) {
	x.books.dropped[why] += spans
	if lose(&x.trouble.dropped, why.String(), spans) {
		x.noteLocked(slog.LevelWarn, "spans are being dropped",
			"reason", why.String(), "state", x.plugin.state.String(), "last_error", x.plugin.lastError)
	}
	x.countLocked(now)
}

// lose counts lost spans, and says whether their kind is a new one to be told.
func lose(counts *map[string]uint64, kind string, spans uint64) (tell bool) {
	if *counts == nil {
		*counts = map[string]uint64{}
	}
	_, known := (*counts)[kind]
	(*counts)[kind] += spans
	return !known && len(*counts) <= mostKinds
}

// countLocked notes how much was lost so far, at a loss that comes long enough
// after the first, or after the last such line.
func (x *exporter) countLocked(now time.Time) {
	t := &x.trouble
	t.last = now
	switch {
	case t.pause == 0:
		t.pause = countFirst
	case now.Before(t.count):
		return
	default:
		t.pause = min(countMost, 2*t.pause)
		x.noteLocked(slog.LevelWarn, "spans are still being lost", t.lost("last_error", x.plugin.lastError)...)
	}
	t.count = now.Add(t.pause)
}

// wellLocked notes the end of trouble.
func (x *exporter) wellLocked(now time.Time) {
	t := &x.trouble
	if t.last.IsZero() || now.Sub(t.last) < calm {
		return
	}
	x.noteLocked(slog.LevelInfo, "spans are delivered again", t.lost()...)
	x.trouble = trouble{}
}

// lost are the spans lost since trouble began, and then more, for a line of the
// log, which is written later: the counts are copied.
func (t *trouble) lost(more ...any) []any {
	args := []any{"rejected_meanwhile", total(t.rejected), "dropped_meanwhile", total(t.dropped)}
	if len(t.rejected) > 0 {
		args = append(args, "rejected_by_code", maps.Clone(t.rejected))
	}
	if len(t.dropped) > 0 {
		args = append(args, "dropped_by_reason", maps.Clone(t.dropped))
	}
	return append(args, more...)
}
