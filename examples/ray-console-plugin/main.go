// Command ray-console-plugin is the debug exporter of Ray Serve's tracing guide,
// with the guide's RayServeSpanProcessor in front: it puts Ray's identity on
// every span, and prints the spans. It proves that a plugin of one's own is a
// processor in front of a stock exporter, in ten lines. What the guide writes as
//
//	def debug_span_processor() -> List[SpanProcessor]:
//	    return [RayServeSpanProcessor(), SimpleSpanProcessor(ConsoleSpanExporter())]
//
// and names in ANYSCALE_TRACING_EXPORTER_IMPORT_PATH (Ray Serve:
// RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH) is here the Spec below, named, once it
// is built, in SERVE_TRACING_EXPORTER_PLUGIN:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=bin/ray-console-plugin bin/hello
//	curl http://localhost:8000/
//
//	RayServeSpanProcessor()        processors.RayContext()
//	ConsoleSpanExporter()          consoleexporter.New, which prints the same JSON
//	SimpleSpanProcessor(exporter)  nothing: the host brings spans in batches, at
//	                               most 200 ms after they ended
//	BatchSpanProcessor(exporter)   nothing: the host queues and retries
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
