package contrib

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	"github.com/servetrace/servetrace/host"
)

// TestHostBesideOTLPExporters runs a program that links the host and both of
// OpenTelemetry's OTLP exporters, like a user who changes to plugins step by step. OTLP's
// messages may be registered once in a process: a host with another copy of them would
// panic at the program's start.
func TestHostBesideOTLPExporters(t *testing.T) {
	viaPlugin, viaHTTP := newBackEnd(t, code(http.StatusOK)), newBackEnd(t, code(http.StatusOK))
	viaGRPC := newCollector(t, func() (*coltracepb.ExportTraceServiceResponse, error) {
		return &coltracepb.ExportTraceServiceResponse{}, nil
	})
	var log bytes.Buffer
	h, err := host.New(host.Config{
		Plugins: link(t, "otlp"), StartTimeout: patience, StopTimeout: patience,
		Environ: []string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + t.TempDir(), "OTEL_EXPORTER_OTLP_ENDPOINT=" + viaPlugin.URL},
	}, host.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	overHTTP, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(viaHTTP.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	overGRPC, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpointURL(viaGRPC.url))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h), sdktrace.WithBatcher(overHTTP), sdktrace.WithBatcher(overGRPC))
	_, span := provider.Tracer("contrib").Start(t.Context(), "seen by all")
	span.End()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := provider.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for name, back := range map[string]*backEnd{"the plugin": viaPlugin, "otlptracehttp": viaHTTP} {
		if got := otlpOf(t, back.requests()); len(got["seen by all"]) != 1 {
			t.Errorf("%s delivered %v", name, got)
		}
	}
	if viaGRPC.calls != 1 {
		t.Errorf("otlptracegrpc made %d calls, want 1", viaGRPC.calls)
	}
	if t.Failed() {
		t.Logf("the host's log:\n%s", log.String())
	}
}
