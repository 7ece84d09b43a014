package spanpath

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

var peerRows = []row{
	{name: rowBSPNoop, doc: "the SDK's batch processor with an exporter that does nothing", nowhere: true, open: openBSPNoop},
	{name: rowBSPHTTP, doc: "the SDK's batch processor with its OTLP/HTTP exporter, in process: what one has today", open: openBSPHTTP},
	{name: rowBSPGzip, doc: "the same, compressed", open: openBSPGzip},
	{name: rowBSPGRPC, doc: "the SDK's batch processor with its OTLP/gRPC exporter, in process", open: openBSPGRPC},
}

// bspWay returns the SDK's batch processor with the exporter. It blocks if no span
// may be lost.
func bspWay(r rig, exporter sdktrace.SpanExporter) *way {
	var options []sdktrace.BatchSpanProcessorOption
	if !r.lossy {
		options = append(options, sdktrace.WithBlocking())
	}
	return sdkWay(sdktrace.NewBatchSpanProcessor(exporter, options...))
}

type noExporter struct{}

func (noExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (noExporter) Shutdown(context.Context) error                             { return nil }

func openBSPNoop(_ context.Context, r rig) (*way, error) { return bspWay(r, noExporter{}), nil }

func openBSPHTTP(ctx context.Context, r rig) (*way, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(r.sink.HTTP))
	if err != nil {
		return nil, err
	}
	return bspWay(r, exporter), nil
}

func openBSPGzip(ctx context.Context, r rig) (*way, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(r.sink.HTTP),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	if err != nil {
		return nil, err
	}
	return bspWay(r, exporter), nil
}

func openBSPGRPC(ctx context.Context, r rig) (*way, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(r.sink.GRPC))
	if err != nil {
		return nil, err
	}
	return bspWay(r, exporter), nil
}
