// Command multi-backend-plugin is an exporter plugin with several back ends: it prints
// each span like the console plugin, appends it to a file, and sends it by OTLP to a
// collector, if an endpoint is set. It corresponds to this sentence of Ray Serve's
// tracing guide: "you can configure this function to return several span processors so
// traces are exported to multiple backends":
//
//	def default_tracing_exporter() -> List[SpanProcessor]:
//	    return [
//	        BatchSpanProcessor(ConsoleSpanExporter()),  # consoleexporter.New
//	        BatchSpanProcessor(LinesExporter()),        # newLines, of our own
//	        BatchSpanProcessor(OTLPSpanExporter()),     # otlpexporter.New
//	    ]
//
// It proves that the back ends are independent: if a back end fails, the other back
// ends get each span once, and the failed back end gets all spans when it works again.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=bin/multi-backend-plugin SPAN_LINES_FILE=/tmp/spans.jsonl bin/hello
//
// With OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318, spans are sent there, too.
//
// Package pluginsdk runs the plugin. Each batch is passed to all exporters
// concurrently, and counts as delivered when all have accepted it. Until then the host
// sends it again, and only the exporters that failed get it. Several plugins in the
// host's list do the same in several processes, each with its own queue and delivery
// accounting. Prefer them if a back end may be down for longer than
// SERVE_TRACING_MAX_AGE.
//
// SPAN_LINES_FILE names the file. SERVE_CONSOLE_* configure the console, and
// OTEL_EXPORTER_OTLP_* configure OTLP. Open this file, then lines.go for an exporter of
// thirty lines.
package main

import (
	"context"
	"slices"

	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

var spec = pluginsdk.Spec{
	Name:        "multi-backend",
	Description: "prints each span, appends it to a file, and sends it by OTLP",
	Env:         slices.Concat(consoleexporter.EnvPatterns(), otlpexporter.EnvPatterns(), []string{envFile}),
	Exporter:    newExporter,
}

func main() { pluginsdk.Main(spec) }

func newExporter(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	exporters := []pluginsdk.NewExporter{consoleexporter.New, newLines}
	if s.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || s.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		exporters = append(exporters, otlpexporter.New)
	}
	return pluginsdk.Tee(exporters...)(ctx, s)
}
