// Command servetrace-plugins is all stock plugins in one executable: console, datadog,
// otlp and processors. In an image it is less than half the size of four executables.
//
// A link with the name of a plugin runs it (pluginsdk.MainByName). The plugins are those of
// plugins/, from the same declarations.
//
//	servetrace-plugins install /usr/local/lib/servetrace/plugins
//	SERVE_TRACING_EXPORTER_PLUGIN=otlp my-service
package main

import (
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/plugins/datadog/datadogexporter"
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

func main() {
	pluginsdk.MainByName(consoleexporter.Spec, datadogexporter.Spec, otlpexporter.Spec, processors.Spec)
}
