package host

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
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
// of the beginning, of each new reason, of how it goes on now and then, and of
// the end, but not of every turn between. The zero value is no trouble.
type trouble struct {
	failing  map[string]bool   // reasons of failures that cost no span so far
	refusing map[string]bool   // reasons of spans rejected
	calls    uint64            // that failed since trouble began
	rejected map[string]uint64 // spans lost since then, by code
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
func (x *exporter) failedLocked(now time.Time, code, what, text string, args ...any) {
	x.blameLocked(now, code, text, 0)
	if isNew(&x.trouble.failing, code, text) {
		x.noteLocked(slog.LevelWarn, what, append([]any{"code", code, "error", text}, args...)...)
	}
	x.trouble.calls++
	x.trouble.last = now
}

// rejectedLocked books spans as rejected, and tells it.
func (x *exporter) rejectedLocked(now time.Time, code string, spans uint64, what, text string) {
	x.books.rejected[code] += spans
	x.blameLocked(now, code, text, spans)
	lose(&x.trouble.rejected, code, spans)
	if isNew(&x.trouble.refusing, code, text) {
		x.noteLocked(slog.LevelWarn, what, "spans", spans, "code", code, "error", text)
	}
	x.trouble.calls++
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

// isNew tells whether a reason is one to be told, and that it has been.
func isNew(told *map[string]bool, code, text string) bool {
	kind := kindOf(code, text)
	if (*told)[kind] || len(*told) >= mostKinds {
		return false
	}
	if *told == nil {
		*told = map[string]bool{}
	}
	(*told)[kind] = true
	return true
}

// kindOf is what tells one reason from another: the code, and the words of the
// back end without what is another each time, ids, counts and times; but 413 is
// no 400.
func kindOf(code, text string) string { return code + withoutNumbers(text, isHTTPStatus) }

// withoutNumbers gives the words of a text, each behind a space. "#" stands for a
// word with a digit in it, unless keep reports that it tells something.
func withoutNumbers(text string, keep func(word string) bool) string {
	var words strings.Builder
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r < 0x80
	}) {
		if strings.ContainsAny(word, "0123456789") && !keep(word) {
			word = "#"
		}
		words.WriteByte(' ')
		words.WriteString(word)
	}
	return words.String()
}

// isShort reports whether a number is more likely a status, a line or a version
// than an id, an address or a random name.
func isShort(word string) bool { return len(word) <= 3 }

// isNothing keeps no number: a stack has addresses and counts of any length.
func isNothing(string) bool { return false }

func isHTTPStatus(word string) bool {
	return len(word) == 3 && (word[0] == '4' || word[0] == '5') && strings.Trim(word, "0123456789") == ""
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

// calmLocked is for a plugin that delivered after its last trouble, and has had
// nothing to deliver since: that is over too, without another batch.
func (x *exporter) calmLocked(now time.Time) {
	p := &x.plugin
	if len(x.queue.again) > 0 || p.lastSuccess.IsZero() || p.silent {
		return
	}
	if p.lastSuccess.After(p.failed) {
		x.deliversLocked(now)
	}
	if p.lastSuccess.After(x.trouble.last) {
		x.wellLocked(now)
	}
}

// lost are the spans lost since trouble began, and then more, for a line of the
// log, which is written later: the counts are copied.
func (t *trouble) lost(more ...any) []any {
	args := []any{"failed_calls", t.calls, "rejected_meanwhile", total(t.rejected), "dropped_meanwhile", total(t.dropped)}
	if len(t.rejected) > 0 {
		args = append(args, "rejected_by_code", maps.Clone(t.rejected))
	}
	if len(t.dropped) > 0 {
		args = append(args, "dropped_by_reason", maps.Clone(t.dropped))
	}
	return append(args, more...)
}

// Failure is one reason for which calls have failed, or spans were rejected, in
// the words of the back end, or of what stands between.
type Failure struct {
	// Code is the gRPC code's name, or "PARTIAL_SUCCESS", or "UNREADABLE" for an
	// answer that makes no sense.
	Code string
	// Reason are the words, of the last such answer: others that differ in ids,
	// numbers and times only count as the same. At most a kilobyte, with the
	// secrets of the configuration taken out; whatever else the back end says is
	// in it as it came.
	Reason string
	// Calls are the answers, Spans those that were lost by them.
	Calls, Spans uint64
	// First is when the first came, Last the last.
	First, Last time.Time
}

// mostFailures are kept for the status: those that came last.
const mostFailures = 8

// blameLocked keeps a failure for the status, whether the log is told or not.
func (x *exporter) blameLocked(now time.Time, code, text string, spans uint64) {
	x.plugin.failLocked(now, text)
	list, kind := x.plugin.failures, kindOf(code, text)
	f := failure{kind: kind, Failure: Failure{Code: code, First: now}}
	if at := slices.IndexFunc(list, func(f failure) bool { return f.kind == kind }); at >= 0 {
		f = list[at]
		list = slices.Delete(list, at, at+1)
	} else if len(list) == mostFailures {
		list = slices.Delete(list, 0, 1)
	}
	f.Reason, f.Last = text, now
	f.Calls++
	f.Spans += spans
	x.plugin.failures = append(list, f)
}

// failure is one of those kept, and what tells it from others.
type failure struct {
	Failure
	kind string
}

// failLocked keeps what went wrong last.
func (p *pluginInfo) failLocked(now time.Time, text string) {
	p.lastError, p.lastErrorAt = text, now
}

// failuresLocked copies those kept, the last one first.
func (p *pluginInfo) failuresLocked() []Failure {
	var list []Failure
	for _, f := range slices.Backward(p.failures) {
		list = append(list, f.Failure)
	}
	return list
}
