// Command datadog is the exporter plugin for Datadog agents. It sends spans through
// dd-trace-go, or by OTLP.
//
// Its life: pluginsdk.Main performs the handshake with the host. The host starts the
// process a second time, with the variables below in its environment, because dd-trace-go
// reads some of them before main. processors.ConfiguredWithRay and datadogexporter.New
// read the variables and the plugin's configuration. Each batch is acknowledged after the
// agent has accepted it.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=datadog DD_ENV=prod my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=datadog DD_AGENT_HOST=10.0.0.7 my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=datadog SERVE_DATADOG_MODE=otlp my-service
//
// DD_TRACE_AGENT_URL, or DD_AGENT_HOST and DD_TRACE_AGENT_PORT, is the agent's address.
// With SERVE_RAY_CONTEXT=off, spans do not get Ray's ids. docs/how-to/datadog.md is the
// manual. Open datadogexporter/exporter.go first.
package main

import (
	"github.com/servetrace/servetrace/plugins/datadog/datadogexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

func main() { pluginsdk.Main(datadogexporter.Spec) }
