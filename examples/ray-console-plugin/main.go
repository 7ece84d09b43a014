// Command ray-console-plugin is the exporter plugin of Ray Serve's tracing guide:
// it puts Ray's identity on every span, and writes the spans as the console
// plugin does. It proves that a plugin of one's own is a processor in front of a
// stock exporter, in ten lines. What the guide writes as
//
//	def anyscale_span_processors() -> list[SpanProcessor]:
//	    return [RayServeSpanProcessor(), BatchSpanProcessor(OTLPSpanExporter())]
//
// and names in ANYSCALE_TRACING_EXPORTER_IMPORT_PATH is here the Spec below:
//
//	pluginsdk.Spec{
//		Processors: []pluginsdk.NewProcessor{processors.RayContext()}, // RayServeSpanProcessor()
//		Exporter:   consoleexporter.New,                               // BatchSpanProcessor(exporter)
//	}
//
// named, once it is built, in SERVE_TRACING_EXPORTER_PLUGIN. There is no
// counterpart of BatchSpanProcessor: spans come in batches, and the host queues
// and retries.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=bin/ray-console-plugin bin/hello
//
// Its life is pluginsdk's. For each batch, RayContext makes ray.job_id,
// ray.actor_id, ray.task_id and ray.request_id of what every span of a request
// carries (serve.task_id, serve.request_id), and the exporter writes it, as its
// variables SERVE_CONSOLE_OUTPUT and SERVE_CONSOLE_FORMAT say. It knows nothing
// of Ray itself.
package main

import (
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

var spec = pluginsdk.Spec{
	Name:        "ray-console",
	Description: "puts Ray's identity on each span and writes it as the console plugin does",
	Env:         consoleexporter.EnvPatterns(),
	Processors:  []pluginsdk.NewProcessor{processors.RayContext()},
	Exporter:    consoleexporter.New,
}

func main() { pluginsdk.Main(spec) }
