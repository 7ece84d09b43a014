// Command otlp is the exporter plugin that sends spans to any back end that
// takes OTLP: the OpenTelemetry Collector, Jaeger, and most vendors.
//
// Its life: pluginsdk.Main does the handshake, then processors.Configured and
// otlpexporter.New read the variables of OpenTelemetry's specification and the
// plugin's document, then each batch is one call to the back end, whose answer
// is the host's. It opens no port, retries nothing by itself and keeps no span.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=./otlp my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=./otlp OTEL_EXPORTER_OTLP_ENDPOINT=https://collector:4318 my-service
//
// docs/how-to/otlp.md is the manual; open otlpexporter/exporter.go for how it works.
package main

import (
	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

var spec = pluginsdk.Spec{
	Name:        "otlp",
	Description: "sends spans by OTLP, over HTTP or gRPC, to a collector or a back end",
	Env:         append(otlpexporter.EnvPatterns(), processors.EnvRayContext),
	Processors:  []pluginsdk.NewProcessor{processors.Configured},
	Exporter:    otlpexporter.New,
}

func main() { pluginsdk.Main(spec) }
