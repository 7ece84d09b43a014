package router

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/serving/internal/accesslog"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer returns a server without proxies.
func newServer(t *testing.T, log *slog.Logger) *Shared {
	base, cancel := context.WithCancel(context.Background())
	s := &Shared{
		Base:    base,
		Counter: inflight.NewCounter(),
		Workers: new(inflight.Workers),
		Metrics: metrics.New(),
		Tracer:  spans.New(tracing.Off()),
		Log:     accesslog.Log{Logger: log},
	}
	t.Cleanup(func() { cancel(); s.Workers.Close() })
	return s
}

// lineLog keeps log lines.
type lineLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func newLineLog() *lineLog { return &lineLog{} }

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// lines returns the log entries with the message, as far as they have come.
func (l *lineLog) lines(t testing.TB, msg string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for text := range strings.Lines(l.buf.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("log line %q: %v", text, err)
		}
		if line["msg"] == msg {
			out = append(out, line)
		}
	}
	return out
}

// take checks that there are n entries with the message.
func (l *lineLog) take(t testing.TB, msg string, n int) {
	t.Helper()
	if lines := l.lines(t, msg); len(lines) != n {
		t.Errorf("%d log lines %q, want %d", len(lines), msg, n)
	}
}
