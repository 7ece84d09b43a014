package host

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// notes are lines for the log that are made under a mutex and written without one.
// Safe for concurrent use.
type notes struct {
	log  *slog.Logger
	mu   sync.Mutex
	list []note
}

type note struct {
	level slog.Level
	text  string
	args  []any
}

func (n *notes) add(level slog.Level, text string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, note{level, text, args})
}

// write logs the notes. It is deferred before a mutex is taken.
func (n *notes) write() {
	n.mu.Lock()
	list := n.list
	n.list = nil
	n.mu.Unlock()
	for _, one := range list {
		n.log.Log(context.Background(), one.level, one.text, one.args...)
	}
}

// failureLog keeps the failures of one exporter's calls and its lost spans, for the
// status and for the log. The log has the beginning of trouble, each new reason, the
// counts now and then, and the end, but not every failure between. Safe for
// concurrent use.
type failureLog struct {
	notes *notes

	mu       sync.Mutex
	state    State // of the plugin, for the log
	last     string
	lastAt   time.Time
	failures []failure // at most mostFailures, the last one last
	trouble  trouble
}

// trouble is a time in which calls fail or spans are lost. The zero value is none.
type trouble struct {
	failing  map[string]bool   // logged reasons of failures that cost no span so far
	refusing map[string]bool   // logged reasons of spans rejected
	calls    uint64            // that failed since trouble began
	rejected map[string]uint64 // spans lost since then, by code
	dropped  map[string]uint64 // the same by the host's reason
	last     time.Time         // last failure or loss
	count    time.Time         // from then on the next loss logs the counts
	pause    time.Duration     // between two such lines
}

// calm is the time without failures after which trouble is over.
const calm = 10 * time.Second

// mostKinds bounds the reasons that are logged in one trouble: of failures without a
// loss, of spans rejected, and of spans dropped.
const mostKinds = 8

// The first and the longest pause between two lines with the counts of lost spans;
// each is twice the one before.
const (
	countFirst = 10 * time.Second
	countMost  = 5 * time.Minute
)

// failed keeps an error that cost no span, and logs it the first time.
func (f *failureLog) failed(now time.Time, code, title, text string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(now, code, text, 0)
	if isNew(&f.trouble.failing, code, text) {
		f.notes.add(slog.LevelWarn, title, append([]any{"code", code, "error", text}, args...)...)
	}
	f.trouble.calls++
	f.trouble.last = now
}

// rejected keeps an error that cost spans, and logs it the first time.
func (f *failureLog) rejected(now time.Time, code string, spans uint64, title, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(now, code, text, spans)
	lose(&f.trouble.rejected, code, spans)
	if isNew(&f.trouble.refusing, code, text) {
		f.notes.add(slog.LevelWarn, title, "spans", spans, "code", code, "error", text)
	}
	f.trouble.calls++
	f.countLocked(now)
}

// dropped logs spans that the host drops, the first time for a reason.
func (f *failureLog) dropped(now time.Time, spans uint64, why reason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lose(&f.trouble.dropped, why.String(), spans) {
		f.notes.add(slog.LevelWarn, "spans are being dropped",
			"reason", why.String(), "state", f.state.String(), "last_error", f.last)
	}
	f.countLocked(now)
}

// lose counts lost spans, and reports whether their kind is new and to be logged.
func lose(counts *map[string]uint64, kind string, spans uint64) (isNew bool) {
	if *counts == nil {
		*counts = map[string]uint64{}
	}
	_, known := (*counts)[kind]
	(*counts)[kind] += spans
	return !known && len(*counts) <= mostKinds
}

// isNew reports whether a reason is to be logged, and remembers it.
func isNew(logged *map[string]bool, code, text string) bool {
	kind := kindOf(code, text)
	if (*logged)[kind] || len(*logged) >= mostKinds {
		return false
	}
	if *logged == nil {
		*logged = map[string]bool{}
	}
	(*logged)[kind] = true
	return true
}

// kindOf returns the same for reasons that differ in ids, counts and times only: the
// code and the words of the back end. But HTTP's 413 is not its 400.
func kindOf(code, text string) string { return code + withoutNumbers(text, isHTTPStatus) }

// withoutNumbers returns the words of a text, each behind a space. "#" replaces a
// word with a digit in it, unless keep reports that the word matters.
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

// isShort reports whether a number is more likely a status, a line or a version than
// an id, an address or a random name.
func isShort(word string) bool { return len(word) <= 3 }

// isNothing keeps no number: a stack has addresses and counts of any length.
func isNothing(string) bool { return false }

func isHTTPStatus(word string) bool {
	return len(word) == 3 && (word[0] == '4' || word[0] == '5') && strings.Trim(word, "0123456789") == ""
}

// countLocked logs the spans lost so far, if the loss comes long enough after the
// first loss, or after the last such line.
func (f *failureLog) countLocked(now time.Time) {
	t := &f.trouble
	t.last = now
	switch {
	case t.pause == 0:
		t.pause = countFirst
	case now.Before(t.count):
		return
	default:
		t.pause = min(countMost, 2*t.pause)
		f.notes.add(slog.LevelWarn, "spans are still being lost", t.lost("last_error", f.last)...)
	}
	t.count = now.Add(t.pause)
}

// delivered logs the end of trouble, if it is over.
func (f *failureLog) delivered(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble.last.IsZero() || now.Sub(f.trouble.last) < calm {
		return
	}
	f.notes.add(slog.LevelInfo, "spans are delivered again", f.trouble.lost()...)
	f.trouble = trouble{}
}

// quietSince reports whether nothing has failed since a time.
func (f *failureLog) quietSince(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.After(f.trouble.last)
}

// lost returns the spans lost since trouble began as arguments for a line of the log,
// which is written later: the counts are copied.
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

// Failure is one reason for which calls have failed or spans were rejected, in the
// words of the back end or of a server between.
type Failure struct {
	// Code is the gRPC code's name, or "PARTIAL_SUCCESS", or "UNREADABLE" for an
	// answer that makes no sense.
	Code string
	// Reason is the text of the last such answer. Answers that differ in ids, numbers
	// and times only count as the same. It has at most a kilobyte, and the credentials
	// of the configuration are redacted; everything else is as the back end sent it.
	Reason string
	// Calls is the number of such answers, Spans the number of spans lost by them.
	Calls, Spans uint64
	// First is the time of the first answer, Last that of the last.
	First, Last time.Time
}

// mostFailures bounds the failures that are kept for the status: the last ones.
const mostFailures = 8

// failure is a Failure with its kind, see kindOf.
type failure struct {
	Failure
	kind string
}

// keep keeps a failure for the status without logging it.
func (f *failureLog) keep(now time.Time, code, text string, spans uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(now, code, text, spans)
}

func (f *failureLog) keepLocked(now time.Time, code, text string, spans uint64) {
	f.last, f.lastAt = text, now
	list, kind := f.failures, kindOf(code, text)
	one := failure{kind: kind, Failure: Failure{Code: code, First: now}}
	if at := slices.IndexFunc(list, func(f failure) bool { return f.kind == kind }); at >= 0 {
		one = list[at]
		list = slices.Delete(list, at, at+1)
	} else if len(list) == mostFailures {
		list = slices.Delete(list, 0, 1)
	}
	one.Reason, one.Last = text, now
	one.Calls++
	one.Spans += spans
	f.failures = append(list, one)
}

// setLast keeps the last error, which is of the plugin and not of a call.
func (f *failureLog) setLast(now time.Time, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.lastAt = text, now
}

// setState sets the plugin's state.
func (f *failureLog) setState(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
}

// stats writes the failures into s, the last one first.
func (f *failureLog) stats(s *ExporterStats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.LastError, s.LastErrorTime = f.last, f.lastAt
	for _, one := range slices.Backward(f.failures) {
		s.Failures = append(s.Failures, one.Failure)
	}
}

// inherit takes over the failures of an exporter of the same name that has ended.
func (f *failureLog) inherit(before *failureLog) {
	before.mu.Lock()
	last, lastAt, failures := before.last, before.lastAt, before.failures
	before.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.lastAt, f.failures = last, lastAt, failures
}
