// Command servetrace-plugins contains all stock plugins in one executable: console,
// datadog, otlp and processors. In an image it is less than half the size of four
// executables.
//
// A link to the executable that has the name of a plugin runs this plugin
// (pluginsdk.MainByName). The plugins have the same Spec as the commands in plugins/.
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
