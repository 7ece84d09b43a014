// Package collectorplugin makes plugins of exporters and processors of the OpenTelemetry
// Collector. The program of a plugin is one line:
//
//	func main() { collectorplugin.Main(kafkaexporter.NewFactory()) }
//
// The Collector's processors can be in front of the exporter, in the same process:
//
//	func main() { collectorplugin.Main(otlphttpexporter.NewFactory(), tailsamplingprocessor.NewFactory()) }
//
// Without an exporter they are a processor plugin, which a host runs before all exporters:
//
//	func main() { collectorplugin.MainProcessors("attributes", attributesprocessor.NewFactory()) }
//
// The plugin's configuration has a key for each component: its type in the Collector.
// The value is the component's configuration, as in the Collector's file. The processors
// of this repository are in the list "processors", and see each batch first:
//
//	kafka:
//	  brokers: [broker:9092]
//	tail_sampling:
//	  policies: [{name: errors, type: status_code, status_code: {status_codes: [ERROR]}}]
//
// The life of a plugin:
//
//  1. [Exporter] reads the configuration of each component, with the factory's defaults,
//     creates the components and starts them, the exporter first.
//  2. Each batch is decoded into the Collector's pdata, goes through the processors, and
//     then to the exporter. The exporter's error is the plugin's answer: a permanent error
//     of the Collector is final, and any other error is retryable.
//  3. At the end the processors are shut down in their order, then the exporter.
//
// A processor plugin has no exporter. It answers each batch with the result of its
// processors.
//
// The exporter's own queue and retries (sending_queue, retry_on_failure) are off unless the
// configuration enables them, so that an answer without an error means that the batch is
// delivered. The host has a queue, sends again after errors, and counts losses.
//
// Components that need extensions of the Collector, such as authenticators, do not start.
// Spans that a back end rejects by OTLP's partial success count as delivered, because the
// Collector's exporters only log that answer.
//
// The package is a module of its own, because it depends on the Collector. Open this file,
// then pipeline.go and processor.go. The folder examples has plugins.
package collectorplugin

import (
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/processor"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// Main runs the plugin of [Spec] as this process and does not return.
func Main(f exporter.Factory, front ...processor.Factory) { pluginsdk.Main(Spec(f, front...)) }

// Spec returns a plugin that is named after the exporter's type, with dashes for
// underscores. The processors in front see each batch in their order. The result may be
// changed: set Env to the variables that the exporter's libraries read, such as "AWS_*".
func Spec(f exporter.Factory, front ...processor.Factory) pluginsdk.Spec {
	description := "runs the exporter " + f.Type().String() + " of the OpenTelemetry Collector"
	for _, p := range front {
		description += ", after its processor " + p.Type().String()
	}
	return pluginsdk.Spec{
		Name:        pluginName(f.Type()),
		Description: description,
		Env:         []string{processors.EnvRayContext},
		Processors:  []pluginsdk.NewProcessor{processors.Configured},
		Exporter:    Exporter(f, front...),
	}
}

// pluginName returns the name of a plugin for a component of this type.
func pluginName(t component.Type) string { return strings.ReplaceAll(t.String(), "_", "-") }
