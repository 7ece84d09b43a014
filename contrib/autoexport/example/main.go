// Command example is a program with OpenTelemetry's autoexport: its environment selects
// the exporter of its spans, such as otlp, console or, by one import, plugins.
//
//	OTEL_TRACES_EXPORTER=servetrace SERVE_TRACING_EXPORTER_PLUGIN=../../../bin/plugins/console go run .
//
// It makes three spans and ends. Read this file from setUpTracing on.
package main

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	_ "github.com/servetrace/servetrace/contrib/autoexport" // OTEL_TRACES_EXPORTER=servetrace
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	provider, err := setUpTracing(ctx)
	if err != nil {
		return err
	}
	work(ctx)
	return provider.Shutdown(ctx) // delivers the spans
}

func setUpTracing(ctx context.Context) (*sdktrace.TracerProvider, error) {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	return provider, nil
}

var tracer = otel.Tracer("github.com/servetrace/servetrace/contrib/autoexport/example")

func work(ctx context.Context) {
	ctx, span := tracer.Start(ctx, "work")
	defer span.End()
	for i := range 2 {
		_, step := tracer.Start(ctx, "step")
		step.SetAttributes(attribute.Int("number", i))
		step.End()
	}
}
