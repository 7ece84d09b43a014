// Command ray-console-plugin is the debug exporter of Ray Serve's tracing guide,
// with the guide's RayServeSpanProcessor in front: it puts Ray's identity on
// every span, and prints the spans. It proves that a custom plugin can be a processor in
// front of a stock exporter, in ten lines. The guide has this function:
//
//	def debug_span_processor() -> List[SpanProcessor]:
//	    return [RayServeSpanProcessor(), SimpleSpanProcessor(ConsoleSpanExporter())]
//
// and names it in ANYSCALE_TRACING_EXPORTER_IMPORT_PATH (Ray Serve:
// RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH). Here it is the Spec below, and
// SERVE_TRACING_EXPORTER_PLUGIN names the built plugin:
//
//	SERVE_TRACING_EXPORTER_PLUGIN=bin/ray-console-plugin bin/hello
//	curl http://localhost:8000/
//
//	RayServeSpanProcessor()        processors.RayContext()
//	ConsoleSpanExporter()          consoleexporter.New, which prints the same JSON
//	SimpleSpanProcessor(exporter)  nothing: the host sends spans in batches, at
//	                               most 200 ms after they ended
//	BatchSpanProcessor(exporter)   nothing: the host queues and retries
//
// Package pluginsdk runs the plugin. For each span of a request, RayContext derives
// ray.job_id, ray.actor_id, ray.task_id and ray.request_id from serve.task_id and
// serve.request_id. Then the exporter writes the batch, in the format of
// SERVE_CONSOLE_FORMAT, to SERVE_CONSOLE_OUTPUT. The plugin does not use Ray.
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
