// Command multi-backend-plugin is one exporter plugin with several back ends: it
// prints each span as the console plugin does, appends it to a file, and sends
// it by OTLP to a collector, where one is named. It is what Ray Serve's tracing
// guide says of its function, "you can configure this function to return several
// span processors so traces are exported to multiple backends":
//
//	def default_tracing_exporter() -> List[SpanProcessor]:
//	    return [
//	        BatchSpanProcessor(ConsoleSpanExporter()),  # consoleexporter.New
//	        BatchSpanProcessor(LinesExporter()),        # newLines, of our own
//	        BatchSpanProcessor(OTLPSpanExporter()),     # otlpexporter.New
//	    ]
//
// It proves that they do not get into each other's way: where one fails, the
// others get each span once, and the one that failed gets all of them when it
// works again.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=bin/multi-backend-plugin SPAN_LINES_FILE=/tmp/spans.jsonl bin/hello
//
// With OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 in front, they go there
// too.
//
// Its life is pluginsdk's. Each batch goes to all exporters at once; it counts as
// delivered when each has it, and the host sends it again, to those that had not
// taken it, until then. Several plugins on the host's list do the same in several
// processes, each with its own queue and books: that is the better choice where
// one back end may be gone for longer than SERVE_TRACING_MAX_AGE.
//
// SPAN_LINES_FILE names the file, SERVE_CONSOLE_* are the console's, and
// OTEL_EXPORTER_OTLP_* those of OTLP. Open this file, then lines.go for an
// exporter of thirty lines.
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
