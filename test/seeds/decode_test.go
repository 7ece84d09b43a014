package seeds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/examples/servicetest"
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
	for _, s := range servicetest.Spans(t, text) {
		id := func(hex string) string { return strings.TrimPrefix(hex, "0x") }
		spans = append(spans, span{
			name: s.Name, trace: id(s.Context.TraceID), id: id(s.Context.SpanID), parent: id(s.ParentID), kind: s.Kind,
			attributes: s.Attributes, resource: s.Resource.Attributes,
		})
	}
	return spans
}
