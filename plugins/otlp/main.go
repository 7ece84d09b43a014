// Command otlp is the exporter plugin for back ends that accept OTLP: the OpenTelemetry
// Collector, Jaeger, and most vendors.
//
// Its life: pluginsdk.Main performs the handshake with the host. processors.Configured
// and otlpexporter.New read the variables of OpenTelemetry's specification and the
// plugin's configuration. Each batch is sent by a single call to the back end, and the
// back end's answer becomes the answer to the host. The plugin opens no port, retries
// nothing, and keeps no spans between batches.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=./otlp my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=./otlp OTEL_EXPORTER_OTLP_ENDPOINT=https://collector:4318 my-service
//
// docs/how-to/otlp.md is the manual. Open otlpexporter/exporter.go first.
package main

import (
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

func main() { pluginsdk.Main(otlpexporter.Spec) }
