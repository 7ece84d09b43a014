// Command servetrace-plugins contains all stock plugins in one executable: console,
// datadog, otlp and processors. A container image with it is less than half the size of an
// image with four executables.
//
// The name of the executable, or of a link to it, selects the plugin (pluginsdk.MainByName).
// The argument install creates the links. The plugins are the same as the commands in
// plugins/.
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
