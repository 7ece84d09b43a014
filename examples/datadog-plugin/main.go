// Command datadog-plugin is the Datadog exporter of Ray Serve's tracing guide: it
// puts Ray's identity on every span and sends the spans to a Datadog agent. It
// proves that such a plugin is the stock exporter behind processors of one's own
// choice. What the guide writes as
//
//	def anyscale_span_processors() -> list[SpanProcessor]:
//	    return [
//	        RayServeSpanProcessor(),   # processors.RayContext()
//	        datadog_span_processor(),  # datadogexporter.New
//	    ]
//
// and names in ANYSCALE_TRACING_EXPORTER_IMPORT_PATH is here the Spec below,
// named, once it is built, in SERVE_TRACING_EXPORTER_PLUGIN. Between the two it
// has a processor of its own, resourceName, which names the resource of a
// handler's spans by their deployment.
//
//	OTEL_SERVICE_NAME=my-service-name SERVE_TRACING_EXPORTER_PLUGIN=bin/datadog-plugin bin/hello
//	curl http://localhost:8000/
//
// The agent is looked for as Datadog's tracers do (DD_AGENT_HOST,
// DD_TRACE_AGENT_URL, else localhost:8126). The guide sends OTLP to the agent's
// port 4318 instead, which has to be switched on in the agent:
//
//	SERVE_DATADOG_MODE=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 OTEL_SERVICE_NAME=my-service-name \
//	  SERVE_TRACING_EXPORTER_PLUGIN=bin/datadog-plugin bin/hello
//
// Its life is pluginsdk's. It holds no span: a batch is answered when the agent
// has it. The plugin "datadog" that comes with servetrace does all of this but
// for resourceName; take that where you have no processor of your own.
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

// resourceName sets resource.name, by which Datadog groups spans, where there is
// none: to "HelloWorld application_span" for a span that the handler of the
// deployment HelloWorld has made. Ray Serve and this runtime set it on their own
// spans, to the span's name, which has the deployment in it.
func resourceName(span pluginsdk.Span) error {
	if _, there := span.Attribute(semconv.ResourceName); there {
		return nil
	}
	replica, _ := span.Attribute(semconv.ServeReplicaID) // APP#DEPLOYMENT#ID
	if parts := strings.Split(replica.AsString(), "#"); len(parts) == 3 {
		span.SetAttributes(attribute.String(semconv.ResourceName, parts[1]+" "+span.Name()))
	}
	return nil
}
