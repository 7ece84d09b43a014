// Command multi-backend-plugin is one exporter plugin with two back ends: it
// prints each span as the console plugin does, and appends it to a file. It is
// what Ray Serve's tracing guide says of its function, "you can configure this
// function to return several span processors so traces are exported to multiple
// backends":
//
//	def default_tracing_exporter() -> list[SpanProcessor]:
//	    return [BatchSpanProcessor(ConsoleSpanExporter()), BatchSpanProcessor(LinesExporter())]
//
// It proves that the two do not get into each other's way: where one fails, the
// other gets each span once, and the one that failed gets all of them when it
// works again.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=bin/multi-backend-plugin SPAN_LINES_FILE=/tmp/spans.jsonl bin/hello
//
// Its life is pluginsdk's. Each batch goes to both exporters at once; it counts as
// delivered when both have it, and the host sends it again, to those that had not
// taken it, until then. Two plugins on the host's list do the same in two
// processes, each with its own queue and books: that is the better choice where
// one back end may be gone for longer than SERVE_TRACING_MAX_AGE.
//
// SPAN_LINES_FILE names the file, SERVE_CONSOLE_* are the console's. Open this
// file, then lines.go for an exporter of thirty lines.
package main

import (
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

var spec = pluginsdk.Spec{
	Name:        "multi-backend",
	Description: "prints each span, and appends it to a file",
	Env:         append(consoleexporter.EnvPatterns(), envFile),
	Exporter:    pluginsdk.Tee(consoleexporter.New, newLines),
}

func main() { pluginsdk.Main(spec) }
