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

// tracerLog passes dd-trace-go's log to the host's log. It logs texts that differ only in
// numbers once. After maxTexts texts it forgets all texts, at most once a minute, and
// reports the number of lines that were left out until then.
type tracerLog struct {
	log *slog.Logger

	mu      sync.Mutex
	seen    map[string]bool // at most maxTexts
	since   time.Time       // time of the last reset of seen
	leftOut int             // lines with a new text while seen was full
}

const maxTexts = 64

var _ tracer.Logger = (*tracerLog)(nil)

func newTracerLog(log *slog.Logger) *tracerLog {
	return &tracerLog{log: log, seen: map[string]bool{}, since: time.Now()}
}

var (
	// tracerLine is the form of a line: "Datadog Tracer v2.12.0 ERROR: text".
	tracerLine = regexp.MustCompile(`^Datadog Tracer \S+ ([A-Z]+): `)
	digits     = regexp.MustCompile(`[0-9]+`)
)

// Log logs a line if it is new.
func (l *tracerLog) Log(line string) {
	level, text := slog.LevelInfo, strings.TrimSpace(line)
	if parts := tracerLine.FindStringSubmatch(text); parts != nil {
		text = text[len(parts[0]):]
		_ = level.UnmarshalText([]byte(parts[1])) // other levels count as INFO
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

// note reports whether a text is new. After a reset of seen, leftOut is the number of lines
// that were left out before.
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
