// Package failures keeps the failures of one exporter for the status and reports them
// in the log, without a flood.
//
//  1. The pipeline and the supervisor report failed calls and lost spans to a Log,
//     mostly under a mutex.
//  2. The Log keeps the last failures of each kind, and makes notes for the log.
//  3. Write, called without a mutex, writes the notes.
//
// The package does not count spans for the accounting. Open this file first.
package failures

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/total"
)

// Log keeps the failed calls and the lost spans of one exporter, for the status and for the
// log. It logs the beginning of trouble, each new reason, the counts at intervals, and the
// end. It does not log every failure. Safe for concurrent use.
type Log struct {
	log *slog.Logger

	mu       sync.Mutex
	notes    []note // lines that Write will log
	state    string // name of the plugin's state, for log lines
	last     string
	lastAt   time.Time
	failures []failure // the last failures, at most mostFailures, the newest at the end
	trouble  trouble
}

type note struct {
	level slog.Level
	text  string
	args  []any
}

// New returns a log of failures that writes to log.
func New(log *slog.Logger) *Log { return &Log{log: log} }

// Note adds a line for the log. It does not write the line, so it may be called under a
// mutex.
func (f *Log) Note(level slog.Level, text string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLocked(level, text, args...)
}

func (f *Log) noteLocked(level slog.Level, text string, args ...any) {
	f.notes = append(f.notes, note{level, text, args})
}

// Write logs the notes. Callers defer it before they take a mutex, so that it runs after
// they have released the mutex.
func (f *Log) Write() {
	f.mu.Lock()
	list := f.notes
	f.notes = nil
	f.mu.Unlock()
	for _, one := range list {
		f.log.Log(context.Background(), one.level, one.text, one.args...)
	}
}

// trouble is a period in which calls fail or spans are lost. The zero value means no
// trouble.
type trouble struct {
	failing  map[string]bool   // reasons of failures without lost spans that were logged
	refusing map[string]bool   // reasons of rejected spans that were logged
	calls    uint64            // number of failed calls since trouble began
	rejected map[string]uint64 // number of rejected spans since then, by gRPC code
	dropped  map[string]uint64 // number of spans that the host has dropped since then, by reason
	last     time.Time         // time of the last failure or loss
	count    time.Time         // a loss after this time logs the counts
	pause    time.Duration     // time between two log lines with counts
}

// Calm is the time without a failure after which a period of trouble is over.
const Calm = 10 * time.Second

// mostKinds bounds the number of reasons that are logged in one period of trouble. It
// applies separately to failures without a loss, to rejected spans, and to dropped
// spans.
const mostKinds = 8

// These are the first and the longest pause between two log lines with the number of
// lost spans. Each pause is twice as long as the pause before.
const (
	countFirst = 10 * time.Second
	countMost  = 5 * time.Minute
)

// Failed records a failure without lost spans. It logs each reason once in a period of
// trouble.
func (f *Log) Failed(now time.Time, code, title, text string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(now, code, text, 0)
	if isNew(&f.trouble.failing, code, text) {
		f.noteLocked(slog.LevelWarn, title, append([]any{"code", code, "error", text}, args...)...)
	}
	f.trouble.calls++
	f.trouble.last = now
}

// Rejected records a failure that has cost spans. It logs each reason once in a period
// of trouble.
func (f *Log) Rejected(now time.Time, code string, spans uint64, title, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(now, code, text, spans)
	lose(&f.trouble.rejected, code, spans)
	if isNew(&f.trouble.refusing, code, text) {
		f.noteLocked(slog.LevelWarn, title, "spans", spans, "code", code, "error", text)
	}
	f.trouble.calls++
	f.countLocked(now)
}

// Dropped records spans that the host has dropped. It logs each reason once in a period
// of trouble.
func (f *Log) Dropped(now time.Time, spans uint64, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lose(&f.trouble.dropped, why, spans) {
		f.noteLocked(slog.LevelWarn, "spans are being dropped",
			"reason", why, "state", f.state, "last_error", f.last)
	}
	f.countLocked(now)
}

// lose adds lost spans to counts. It reports whether a line must be logged, because
// their kind is new.
func lose(counts *map[string]uint64, kind string, spans uint64) (isNew bool) {
	if *counts == nil {
		*counts = map[string]uint64{}
	}
	_, known := (*counts)[kind]
	(*counts)[kind] += spans
	return !known && len(*counts) <= mostKinds
}

// isNew reports whether the reason of a failure must be logged. It returns true once
// for each kind of reason, and false after mostKinds kinds.
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

// kindOf returns the same text for reasons that differ only in ids, counts and times.
// HTTP statuses such as 413 and 400 make a difference.
func kindOf(code, text string) string { return code + WithoutNumbers(text, isHTTPStatus) }

// WithoutNumbers returns the words of a text, with a space before each. It replaces a
// word that contains a digit by "#", unless keep returns true for the word.
func WithoutNumbers(text string, keep func(word string) bool) string {
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

// IsShort is a keep function of WithoutNumbers. A short number is more likely a status,
// a line or a version than an id, an address or a random name.
func IsShort(word string) bool { return len(word) <= 3 }

// IsNothing is a keep function of WithoutNumbers that keeps no number. It is for
// stacks, which have addresses and counts of any length.
func IsNothing(string) bool { return false }

func isHTTPStatus(word string) bool {
	return len(word) == 3 && (word[0] == '4' || word[0] == '5') && strings.Trim(word, "0123456789") == ""
}

// countLocked logs the number of lost spans. After each such line, and after the first
// loss, it logs none for a while (pause).
func (f *Log) countLocked(now time.Time) {
	t := &f.trouble
	t.last = now
	switch {
	case t.pause == 0:
		t.pause = countFirst
	case now.Before(t.count):
		return
	default:
		t.pause = min(countMost, 2*t.pause)
		f.noteLocked(slog.LevelWarn, "spans are still being lost", t.lost("last_error", f.last)...)
	}
	t.count = now.Add(t.pause)
}

// Delivered records a delivery. If there was no failure for Calm, it logs the end of
// the trouble.
func (f *Log) Delivered(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble.last.IsZero() || now.Sub(f.trouble.last) < Calm {
		return
	}
	f.noteLocked(slog.LevelInfo, "spans are delivered again", f.trouble.lost()...)
	f.trouble = trouble{}
}

// QuietSince reports whether the last failure or loss is older than t.
func (f *Log) QuietSince(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return t.After(f.trouble.last)
}

// lost returns the counts of lost spans in this period of trouble, as arguments for a
// log line. It copies the maps, because the line is written later.
func (t *trouble) lost(more ...any) []any {
	args := []any{"failed_calls", t.calls, "rejected_meanwhile", total.Of(t.rejected), "dropped_meanwhile", total.Of(t.dropped)}
	if len(t.rejected) > 0 {
		args = append(args, "rejected_by_code", maps.Clone(t.rejected))
	}
	if len(t.dropped) > 0 {
		args = append(args, "dropped_by_reason", maps.Clone(t.dropped))
	}
	return append(args, more...)
}

// Failure is one reason for which calls have failed or spans were rejected. Package
// host documents it.
type Failure struct {
	Code, Reason string
	Calls, Spans uint64
	First, Last  time.Time
}

// mostFailures bounds the number of failures that the status shows.
const mostFailures = 8

// failure is a Failure with the result of kindOf, by which repeated failures are found.
type failure struct {
	Failure
	kind string
}

// Keep records a failure for the status, without a log line.
func (f *Log) Keep(now time.Time, code, text string, spans uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(now, code, text, spans)
}

func (f *Log) keepLocked(now time.Time, code, text string, spans uint64) {
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

// SetLast sets the last error for the status, for an error that is not the failure of a
// call.
func (f *Log) SetLast(now time.Time, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.lastAt = text, now
}

// SetState sets the name of the plugin's state, for log lines.
func (f *Log) SetState(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
}

// Recent returns the last failures, the newest first, and the last error with its time.
func (f *Log) Recent() (list []Failure, last string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range slices.Backward(f.failures) {
		list = append(list, one.Failure)
	}
	return list, f.last, f.lastAt
}

// Inherit copies the failures of before, the log of an ended plugin with the same name.
func (f *Log) Inherit(before *Log) {
	before.mu.Lock()
	last, lastAt, failures := before.last, before.lastAt, before.failures
	before.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.lastAt, f.failures = last, lastAt, failures
}
