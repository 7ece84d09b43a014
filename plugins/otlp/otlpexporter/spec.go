package otlpexporter

import (
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// Spec declares the plugin "otlp". Its executable is in plugins/otlp. Another executable
// can combine it with further plugins, by pluginsdk.MainByName.
var Spec = pluginsdk.Spec{
	Name:        "otlp",
	Description: "sends spans by OTLP, over HTTP or gRPC, to a collector or a back end",
	Env:         append(EnvPatterns(), processors.EnvRayContext),
	Processors:  []pluginsdk.NewProcessor{processors.Configured},
	Exporter:    New,
}
