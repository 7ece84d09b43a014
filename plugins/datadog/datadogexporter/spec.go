package datadogexporter

import (
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// Spec declares the plugin datadog. plugins/datadog is its executable, and an executable of
// yours may have several plugins (pluginsdk.MainByName).
var Spec = pluginsdk.Spec{
	Name:        "datadog",
	Description: "sends spans to a Datadog agent, through dd-trace-go or by OTLP",
	Env:         append(EnvPatterns(), processors.EnvRayContext),
	EnvAtStart:  true,
	Processors:  []pluginsdk.NewProcessor{processors.ConfiguredWithRay},
	Exporter:    New,
}
