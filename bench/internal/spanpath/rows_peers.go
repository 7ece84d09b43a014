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
	{name: rowNaive, doc: "the SDK's batch processor with an exporter made by go-plugin's guide: messages over gRPC, decoded, encoded and posted", open: openNaive},
}

// bspWay is the SDK's batch processor, one for each exporter; it blocks where
// nothing may be lost.
func bspWay(r rig, exporters ...sdktrace.SpanExporter) *way {
	var options []sdktrace.BatchSpanProcessorOption
	if !r.lossy {
		options = append(options, sdktrace.WithBlocking())
	}
	if r.queue > 0 {
		options = append(options, sdktrace.WithMaxQueueSize(r.queue))
	}
	var processors []sdktrace.SpanProcessor
	for _, x := range exporters {
		processors = append(processors, sdktrace.NewBatchSpanProcessor(x, options...))
	}
	return sdkWay(processors...)
}

type noExporter struct{}

func (noExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (noExporter) Shutdown(context.Context) error                             { return nil }

func openBSPNoop(_ context.Context, r rig) (*way, error) { return bspWay(r, noExporter{}), nil }

func openBSPHTTP(ctx context.Context, r rig) (*way, error) {
	var exporters []sdktrace.SpanExporter
	for range max(1, r.exporters) {
		exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(r.http))
		if err != nil {
			return nil, err
		}
		exporters = append(exporters, exporter)
	}
	return bspWay(r, exporters...), nil
}

func openBSPGzip(ctx context.Context, r rig) (*way, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(r.http),
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
