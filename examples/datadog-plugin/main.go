// Command datadog-plugin is the Datadog exporter of Ray Serve's tracing guide: it
// puts Ray's identity on every span and sends the spans to a Datadog agent. It
// proves that such a plugin needs only the stock exporter and a choice of processors.
// The guide has this function:
//
//	def anyscale_span_processors() -> list[SpanProcessor]:
//	    return [
//	        RayServeSpanProcessor(),   # processors.RayContext()
//	        datadog_span_processor(),  # datadogexporter.New
//	    ]
//
// and names it in ANYSCALE_TRACING_EXPORTER_IMPORT_PATH. Here it is the Spec below, and
// SERVE_TRACING_EXPORTER_PLUGIN names the built plugin. It also has its own processor,
// resourceName, which sets the resource name of a handler's spans to their deployment.
//
//	OTEL_SERVICE_NAME=my-service-name SERVE_TRACING_EXPORTER_PLUGIN=bin/datadog-plugin bin/hello
//	curl http://localhost:8000/
//
// The agent's address is found as by Datadog's tracers (DD_AGENT_HOST,
// DD_TRACE_AGENT_URL, else localhost:8126). The guide sends OTLP to the agent's port
// 4318 instead, which must be enabled in the agent:
//
//	SERVE_DATADOG_MODE=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 OTEL_SERVICE_NAME=my-service-name \
//	  SERVE_TRACING_EXPORTER_PLUGIN=bin/datadog-plugin bin/hello
//
// Package pluginsdk runs the plugin. The plugin queues no spans: a batch is answered
// when the agent has accepted it. The stock plugin "datadog" of servetrace does the same
// without resourceName; use it if you need no processor of your own.
package main

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/plugins/datadog/datadogexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
	"github.com/servetrace/servetrace/semconv"
)

var spec = pluginsdk.Spec{
	Name:        "datadog",
	Description: "puts Ray's identity on each span and sends it to a Datadog agent",
	Env:         datadogexporter.EnvPatterns(),
	EnvAtStart:  true, // dd-trace-go reads some variables before main
	Processors:  []pluginsdk.NewProcessor{processors.RayContext(), pluginsdk.EachSpan("resource-name", resourceName)},
	Exporter:    datadogexporter.New,
}

func main() {
	pluginsdk.Main(spec)
}

// resourceName sets resource.name, by which Datadog groups spans, if it is missing. A
// span from the handler of the deployment HelloWorld gets "HelloWorld
// application_span". Ray Serve and this runtime set the attribute on their own spans,
// to the span's name, which contains the deployment.
func resourceName(span pluginsdk.Span) error {
	if _, ok := span.Attribute(semconv.ResourceName); ok {
		return nil
	}
	replica, _ := span.Attribute(semconv.ServeReplicaID) // APP#DEPLOYMENT#ID
	if parts := strings.Split(replica.AsString(), "#"); len(parts) == 3 {
		span.SetAttributes(attribute.String(semconv.ResourceName, parts[1]+" "+span.Name()))
	}
	return nil
}
