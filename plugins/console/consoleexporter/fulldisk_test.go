package consoleexporter_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
)

// TestDiskThatIsFullTearsNoSpan: the kernel accepts only a part of a span. The file then
// has whole spans only, also later, when there is room again.
func TestDiskThatIsFullTearsNoSpan(t *testing.T) {
	dir := t.TempDir()
	exporter, err := consoleexporter.New(t.Context(), setup(map[string]string{"SERVE_CONSOLE_OUTPUT": dir}, nil))
	if err != nil {
		t.Fatal(err)
	}
	var spans []*tracepb.Span
	for i := range 20 {
		span := proxySpan()
		span.Name = "span " + strconv.Itoa(i)
		spans = append(spans, span)
	}
	all := batch(t, resource("", nil, spans...))

	signal.Ignore(syscall.SIGXFSZ) // the write fails instead
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	var room syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &room); err != nil {
		t.Fatal(err)
	}
	limit := func(most uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: room.Max}); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { limit(room.Cur) })
	limit(5000)
	err = exporter.Export(t.Context(), all)
	limit(room.Cur)
	if !errors.Is(err, syscall.EFBIG) || strings.Contains(err.Error(), "a part of a span") {
		t.Errorf("Export = %v, want the kernel's word", err)
	}
	before := wholeSpans(t, dir)
	if before == 0 || before >= len(spans) {
		t.Fatalf("%d spans fit; the limit is for some", before)
	}
	if err := exporter.Export(t.Context(), all); err != nil {
		t.Error(err)
	}
	if got := wholeSpans(t, dir); got != before+len(spans) {
		t.Errorf("%d spans after the second try, want %d and %d", got, before, len(spans))
	}
}

// wholeSpans counts the spans of the one file, which must hold nothing else.
func wholeSpans(t *testing.T, dir string) (n int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("files %q, %v", paths, err)
	}
	file, err := os.Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // read only
	for decoder := json.NewDecoder(file); ; n++ {
		var span map[string]any
		switch err := decoder.Decode(&span); {
		case errors.Is(err, io.EOF):
			return n
		case err != nil:
			t.Fatalf("after %d spans: %v", n, err)
		}
	}
}
