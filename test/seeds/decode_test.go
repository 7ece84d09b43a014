package seeds

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spanFiles returns the span files in a folder, sorted by name.
func spanFiles(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_tracing.json"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// spansOf returns the spans of span files.
func spansOf(t *testing.T, files ...string) []span {
	t.Helper()
	var spans []span
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spans = append(spans, decodeSpans(t, string(text))...)
	}
	return spans
}

// decodeSpans reads spans as Ray Serve and the plugin console write them.
func decodeSpans(t *testing.T, text string) []span {
	t.Helper()
	var spans []span
	for decoder := json.NewDecoder(strings.NewReader(text)); ; {
		var s struct {
			Name    string
			Context struct {
				TraceID string `json:"trace_id"`
				SpanID  string `json:"span_id"`
			}
			Kind       string
			ParentID   string `json:"parent_id"`
			Attributes map[string]any
			Resource   struct{ Attributes map[string]any }
		}
		err := decoder.Decode(&s)
		if errors.Is(err, io.EOF) {
			return spans
		}
		if err != nil {
			t.Fatalf("these are not spans: %v\n%s", err, text)
		}
		id := func(hex string) string { return strings.TrimPrefix(hex, "0x") }
		spans = append(spans, span{
			name: s.Name, trace: id(s.Context.TraceID), id: id(s.Context.SpanID), parent: id(s.ParentID), kind: s.Kind,
			attributes: s.Attributes, resource: s.Resource.Attributes,
		})
	}
}
