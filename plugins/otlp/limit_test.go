package main

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
)

// TestLargestBatchesFitAnyServer: a gRPC server accepts 4 MiB by default. A batch of the
// largest settings has more, so it is sent in parts.
func TestLargestBatchesFitAnyServer(t *testing.T) {
	const most = 3 << 20 // of both settings
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back := &backEnd{}
	s := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(s, back)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-served })
	h, err := host.New(host.Config{
		Plugins: "otlp=" + os.Args[0], AllowWritable: true,
		BatchBytes: most, MaxSpanBytes: most,
		PluginEnv: map[string][]string{"otlp": {envPlugin, "GORACE"}},
		Environ: append(os.Environ(), envPlugin+"=1", "GORACE=atexit_sleep_ms=0",
			otlpexporter.EnvEndpoint+"=http://"+l.Addr().String(), otlpexporter.EnvProtocol+"=grpc"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h))
	sizes := []int{most * 9 / 10, most * 9 / 10, 1000, most / 2, most / 3, most * 9 / 10}
	for _, size := range sizes {
		_, span := provider.Tracer("test").Start(t.Context(), "large",
			trace.WithAttributes(attribute.String("content", strings.Repeat("x", size))))
		span.End()
	}
	if err := h.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	if stats := h.Stats(); stats.Exporters[0].Delivered != uint64(len(sizes)) || stats.Check() != nil {
		t.Errorf("want %d spans delivered, the accounting has %+v", len(sizes), stats)
	}
	if ids, _ := back.received(); len(ids) != len(sizes) {
		t.Errorf("%d spans arrived, want %d", len(ids), len(sizes))
	}
	if err := provider.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
