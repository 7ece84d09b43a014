// Package recorded makes providers of package tracing for tests, and keeps the spans
// that they end. It makes no spans. The file recorded.go is all.
package recorded

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/tracing"
)

// Provider returns a provider of [tracing.DefaultConfig] as changed by the edits, and
// the exporter that gets each of its spans at the span's end. The test's cleanup shuts
// the provider down.
func Provider(tb testing.TB, edits ...func(*tracing.Config)) (*tracing.Provider, *tracetest.InMemoryExporter) {
	tb.Helper()
	cfg := tracing.DefaultConfig()
	for _, edit := range edits {
		edit(&cfg)
	}
	exporter := tracetest.NewInMemoryExporter()
	p, err := tracing.NewProvider(cfg, sdktrace.NewSimpleSpanProcessor(exporter))
	if err != nil {
		tb.Fatalf("NewProvider: %v", err)
	}
	tb.Cleanup(func() {
		// Not tb.Context, which has ended by now.
		if err := p.Shutdown(context.Background()); err != nil {
			tb.Errorf("Shutdown: %v", err)
		}
	})
	return p, exporter
}
