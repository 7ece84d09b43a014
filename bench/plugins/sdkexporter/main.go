// Command sdkexporter is a plugin around OpenTelemetry's own OTLP/HTTP exporter,
// unchanged.
package main

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

func main() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "sdkexporter", Env: []string{"OTEL_EXPORTER_OTLP_*"}, Limits: pluginsdk.Limits{MaxConcurrency: 1},
		Exporter: otelplugin.Exporter(func(ctx context.Context, _ pluginsdk.Setup) (sdktrace.SpanExporter, error) {
			return otlptracehttp.New(ctx) // reads the variables
		}),
	})
}
