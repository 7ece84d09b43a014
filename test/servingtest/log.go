package servingtest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// Log is an [io.Writer] that keeps the lines of a logger. The zero Log is empty. Its
// methods are safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// Text returns all lines so far.
func (l *Log) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Count returns the number of lines that contain the text.
func (l *Log) Count(text string) (n int) {
	for line := range strings.Lines(l.Text()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Lines returns the entries of a JSON log with the message, oldest first. It fails the
// test if a line is not JSON.
func (l *Log) Lines(tb testing.TB, msg string) []map[string]any {
	tb.Helper()
	var out []map[string]any
	for text := range strings.Lines(l.Text()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			tb.Fatalf("log line %q: %v", text, err)
		}
		if line["msg"] == msg {
			out = append(out, line)
		}
	}
	return out
}
