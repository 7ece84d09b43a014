package serveload

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
)

// otelSDK is OpenTelemetry in the server's process as one has it today: its SDK's
// batch processor and its OTLP/HTTP exporter. The processor blocks, so that
// nothing is lost.
type otelSDK struct {
	*sdktrace.TracerProvider

	ended, delivered atomic.Uint64
}

// startSDK starts it with the settings of the environment, as OpenTelemetry reads
// them.
func startSDK(ctx context.Context) (*otelSDK, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	s := &otelSDK{}
	s.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(
		sdktrace.NewBatchSpanProcessor(countedExporter{exporter, s}, sdktrace.WithBlocking())))
	return s, nil
}

// countedExporter keeps the books: a batch that the exporter took is delivered.
type countedExporter struct {
	sdktrace.SpanExporter

	sdk *otelSDK
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.sdk.ended.Add(uint64(len(spans)))
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		e.sdk.delivered.Add(uint64(len(spans)))
	}
	return err
}

// otelSpans is how many spans a sampled request has there: one, and one for each
// link of a chain.
func otelSpans(app string) int {
	if app == appChain {
		return 4
	}
	return 1
}

// startOTel serves an application on a bare server with OpenTelemetry's own
// instrumentation of it, which makes one span a request. In a chain each link has
// another, as one writes them by hand.
func startOTel(ctx context.Context, addr, app string) (*server, error) {
	sdk, err := startSDK(ctx)
	if err != nil {
		return nil, err
	}
	bare, err := startBare(addr, app, extras{
		http: func(h http.Handler) http.Handler {
			return otelhttp.NewHandler(h, "server", otelhttp.WithTracerProvider(sdk), otelhttp.WithPropagators(propagation.TraceContext{}))
		},
		link: func(name string, f function) function {
			tracer := sdk.Tracer("bench")
			return func(ctx context.Context, in question) (answer, error) {
				ctx, span := tracer.Start(ctx, name)
				defer span.End()
				return f(ctx, in)
			}
		},
		grpc: []grpc.ServerOption{grpc.StatsHandler(
			otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(sdk), otelgrpc.WithPropagators(propagation.TraceContext{})))},
	})
	if err != nil {
		return nil, errors.Join(err, sdk.Shutdown(ctx))
	}
	return &server{addr: bare.addr, stop: func() (books, error) {
		_, err := bare.stop()
		err = errors.Join(err, sdk.Shutdown(context.WithoutCancel(ctx)))
		return books{Ended: sdk.ended.Load(), Delivered: sdk.delivered.Load()}, err
	}}, nil
}
