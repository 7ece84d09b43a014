package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// TestStockExporterCompresses sends gzip by OpenTelemetry's exporter to a plugin that
// listens. The plugin is console, because it links no compressor of its own.
func TestStockExporterCompresses(t *testing.T) {
	folder := t.TempDir()
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(), otlptracegrpc.WithCompressor("gzip"),
		otlptracegrpc.WithEndpoint(listen(t, "console", "SERVE_CONSOLE_OUTPUT="+folder)))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	_, span := provider.Tracer("test").Start(t.Context(), "compressed")
	span.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*_tracing.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("span files %q, %v; want one", files, err)
	}
	if text, err := os.ReadFile(files[0]); err != nil || strings.Count(string(text), `"name": "compressed"`) != 1 {
		t.Errorf("%v, and the file has no span:\n%s", err, text)
	}
}
