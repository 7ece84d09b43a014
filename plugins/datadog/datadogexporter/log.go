package datadogexporter

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
)

// tracerLog passes dd-trace-go's log lines to the host's log. It logs lines that differ
// only in numbers once. After maxTexts different lines it logs no new lines until a
// minute has passed. Then it begins again, and logs the number of lines that it has left
// out.
type tracerLog struct {
	log *slog.Logger

	mu      sync.Mutex
	seen    map[string]bool // lines that were logged, with 0 for each number; at most maxTexts
	since   time.Time       // the time at which seen was last emptied
	leftOut int             // number of new lines that were left out because seen was full
}

const maxTexts = 64

var _ tracer.Logger = (*tracerLog)(nil)

func newTracerLog(log *slog.Logger) *tracerLog {
	return &tracerLog{log: log, seen: map[string]bool{}, since: time.Now()}
}

var (
	// tracerLine matches the beginning of a log line of dd-trace-go: "Datadog Tracer v2.12.0
	// ERROR: text".
	tracerLine = regexp.MustCompile(`^Datadog Tracer \S+ ([A-Z]+): `)
	digits     = regexp.MustCompile(`[0-9]+`)
)

// Log logs a line, unless it differs only in numbers from an earlier line, or too many
// lines were logged.
func (l *tracerLog) Log(line string) {
	level, text := slog.LevelInfo, strings.TrimSpace(line)
	if parts := tracerLine.FindStringSubmatch(text); parts != nil {
		text = text[len(parts[0]):]
		_ = level.UnmarshalText([]byte(parts[1])) // an unknown level counts as INFO
		if level == slog.LevelInfo {
			level = slog.LevelDebug
		}
	}
	isNew, leftOut := l.note(digits.ReplaceAllString(text, "0"))
	if leftOut > 0 {
		l.log.Warn("lines of the Datadog tracer were left out of the log", "lines", leftOut)
	}
	if isNew {
		l.log.Log(context.Background(), level, "Datadog tracer: "+text)
	}
}

// note reports whether a line must be logged. text is the line with 0 for each number.
// leftOut is the number of lines that were left out, if note begins again, and otherwise
// 0.
func (l *tracerLog) note(text string) (isNew bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[text] {
		return false, 0
	}
	if len(l.seen) == maxTexts {
		if time.Since(l.since) < time.Minute {
			l.leftOut++
			return false, 0
		}
		clear(l.seen)
		leftOut, l.leftOut, l.since = l.leftOut, 0, time.Now()
	}
	l.seen[text] = true
	return true, leftOut
}
