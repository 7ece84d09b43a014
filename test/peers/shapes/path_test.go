package shapes

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/pluginsdk"
)

// patience bounds each step of these tests; on a quiet machine none takes a
// tenth of it.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == rewriting {
		pluginsdk.Main(rewritingSpec)
		return
	}
	goleak.VerifyTestMain(m)
}

// throughPlugin is deliver where all spans must be delivered.
func throughPlugin(tb testing.TB, spans []sdktrace.ReadOnlySpan, path, document string, environ ...string) {
	tb.Helper()
	books := deliver(tb, spans, path, document, environ...)
	if books.Delivered != uint64(len(spans)) {
		tb.Fatalf("of %d spans, delivered %d, rejected %v, dropped %v, filtered %v, last error %q", len(spans),
			books.Delivered, books.Rejected, books.Dropped, books.Filtered, books.LastError)
	}
}

// deliver hands spans to a host with one plugin, to the end, and gives the
// plugin's books. document is the plugin's, in YAML, or empty.
func deliver(tb testing.TB, spans []sdktrace.ReadOnlySpan, path, document string, environ ...string) host.ExporterStats {
	tb.Helper()
	var log bytes.Buffer
	config := host.Config{
		Plugins: "shapes=" + path,
		// Nothing is lost by bounds: they are another test's.
		QueueBytes: 2 << 30, MaxSpanBytes: 3 << 20, MaxAge: patience, ExportTimeout: patience / 4,
		BatchAge: 20 * time.Millisecond, StartTimeout: patience, StopTimeout: patience,
		Environ: append(environ, "PATH="+os.Getenv("PATH"), "GOCOVERDIR="+tb.TempDir(), "GORACE=atexit_sleep_ms=0"),
	}
	if document != "" {
		config.PluginConfigs = map[string]host.PluginConfig{"shapes": {Document: []byte(document)}}
	}
	h, err := host.New(config, host.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		tb.Fatal(err)
	}
	if err := h.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	for _, s := range spans {
		h.OnEnd(s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := h.ForceFlush(ctx); err != nil {
		tb.Errorf("ForceFlush: %v", err)
	}
	if err := h.Shutdown(ctx); err != nil {
		tb.Errorf("Shutdown: %v", err)
	}
	stats := h.Stats()
	if err := stats.Check(); err != nil {
		tb.Errorf("the books do not balance: %v", err)
	}
	if stats.Accepted != uint64(len(spans)) {
		tb.Errorf("of %d spans, %d ended, refused %v", len(spans), stats.Ended, stats.Refused)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the host's log:\n%s", log.String())
		}
	})
	return stats.Exporters[0]
}

// throughSDK hands spans to the SDK's own exporter in this process, behind the
// SDK's own batch processor, which waits rather than drops.
func throughSDK(tb testing.TB, spans []sdktrace.ReadOnlySpan, endpoint string, opts ...sdktrace.BatchSpanProcessorOption) {
	tb.Helper()
	// By default a call has ten seconds, and a batch thirty: on a busy machine
	// that is not enough, and the reference would have spans missing.
	exporter, err := otlptracehttp.New(tb.Context(), otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"), otlptracehttp.WithTimeout(patience))
	if err != nil {
		tb.Fatal(err)
	}
	processor := sdktrace.NewBatchSpanProcessor(exporter, append(opts, sdktrace.WithBlocking(), sdktrace.WithExportTimeout(patience))...)
	for _, s := range spans {
		processor.OnEnd(s)
	}
	// From here on, not from the first span: with many, OnEnd has waited for most.
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := processor.Shutdown(ctx); err != nil {
		tb.Errorf("the SDK's exporter: %v", err)
	}
}
