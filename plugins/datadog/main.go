// Command datadog is the exporter plugin that sends spans to a Datadog agent:
// through dd-trace-go, or by OTLP.
//
// Its life: pluginsdk.Main does the handshake; the host starts the process once
// more, with the variables below in its start environment, for dd-trace-go reads
// some before main; processors.ConfiguredWithRay and datadogexporter.New read
// them and the plugin's document; then each batch is in the agent before it is
// acknowledged.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=datadog DD_ENV=prod my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=datadog DD_AGENT_HOST=10.0.0.7 my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=datadog SERVE_DATADOG_MODE=otlp my-service
//
// DD_TRACE_AGENT_URL, or DD_AGENT_HOST and DD_TRACE_AGENT_PORT, say where the
// agent is. SERVE_RAY_CONTEXT=off leaves Ray's ids away. docs/how-to/datadog.md is the
// manual; open datadogexporter/exporter.go for the code.
package main

import (
	"github.com/servetrace/servetrace/plugins/datadog/datadogexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

var spec = pluginsdk.Spec{
	Name:        "datadog",
	Description: "sends spans to a Datadog agent, through dd-trace-go or by OTLP",
	Env:         append(datadogexporter.EnvPatterns(), processors.EnvRayContext),
	EnvAtStart:  true,
	Processors:  []pluginsdk.NewProcessor{processors.ConfiguredWithRay},
	Exporter:    datadogexporter.New,
}

func main() {
	pluginsdk.Main(spec)
}
