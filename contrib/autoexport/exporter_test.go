package autoexport_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	servetrace "github.com/servetrace/servetrace/contrib/autoexport"
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

// TestMain lets this test binary also be the console plugin, under its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "console" {
		pluginsdk.Main(pluginsdk.Spec{Name: "console", Env: consoleexporter.EnvPatterns(), Exporter: consoleexporter.New})
	}
	os.Exit(m.Run())
}

// newProvider returns a provider with a batch processor before autoexport's exporter.
func newProvider(t *testing.T) (*sdktrace.TracerProvider, *servetrace.Exporter) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), "console")
	if err := os.Symlink(exe, plugin); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_TRACES_EXPORTER", servetrace.Name)
	t.Setenv("SERVE_TRACING_EXPORTER_PLUGIN", plugin)
	t.Setenv("SERVE_TRACING_START_TIMEOUT", "1m")
	t.Setenv("SERVE_TRACING_STOP_TIMEOUT", "1m")
	t.Setenv("SERVE_CONSOLE_OUTPUT", t.TempDir())
	exporter, err := autoexport.NewSpanExporter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The cleanup of the environment would come too early for a deferred Shutdown.
	t.Cleanup(func() { _ = exporter.Shutdown(context.Background()) })
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter)), exporter.(*servetrace.Exporter)
}

func end(t *testing.T, provider *sdktrace.TracerProvider, spans int) {
	t.Helper()
	for range spans {
		_, span := provider.Tracer("test").Start(t.Context(), "span")
		span.End()
	}
}

func TestForceFlushDelivers(t *testing.T) {
	provider, exporter := newProvider(t)
	end(t, provider, 700) // more than a batch of the processor
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := exporter.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := exporter.Stats().Exporters[0]; got.Delivered != 700 || got.Waiting != 0 {
		t.Errorf("delivered %d of 700 spans, and %d wait", got.Delivered, got.Waiting)
	}
}

func TestShutdownDelivers(t *testing.T) {
	provider, exporter := newProvider(t)
	end(t, provider, 700)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := exporter.Stats().Exporters[0].Delivered; got != 700 {
		t.Errorf("delivered %d of 700 spans", got)
	}
	if err := exporter.Shutdown(t.Context()); err != nil {
		t.Errorf("second Shutdown: %v", err)
	}
}
