package datadogexporter

import (
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// Spec declares the plugin "datadog". Its executable is in plugins/datadog. Another
// executable can combine it with further plugins, by pluginsdk.MainByName.
var Spec = pluginsdk.Spec{
	Name:        "datadog",
	Description: "sends spans to a Datadog agent, through dd-trace-go or by OTLP",
	Env:         append(EnvPatterns(), processors.EnvRayContext),
	EnvAtStart:  true,
	Processors:  []pluginsdk.NewProcessor{processors.ConfiguredWithRay},
	Exporter:    New,
}
