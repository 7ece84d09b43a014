package datadogexporter

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
)

// tracerLog passes dd-trace-go's log to the host's log. It logs texts that differ only in
// numbers once, and at most maxTexts texts.
type tracerLog struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]bool // at most maxTexts
}

const maxTexts = 64

var _ tracer.Logger = (*tracerLog)(nil)

func newTracerLog(log *slog.Logger) *tracerLog {
	return &tracerLog{log: log, seen: map[string]bool{}}
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
	if l.isNew(digits.ReplaceAllString(text, "0")) {
		l.log.Log(context.Background(), level, "Datadog tracer: "+text)
	}
}

func (l *tracerLog) isNew(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[text] || len(l.seen) == maxTexts {
		return false
	}
	l.seen[text] = true
	return true
}
