// Command processors is the processor plugin for operators. It runs the ready-made
// processors of its configuration (filter, sample, raycontext, attributes, redact) before
// all exporters, so that each exporter gets spans without secrets, for example.
//
// Its life: pluginsdk.Main performs the handshake. processors.Configured reads the
// configuration. Each batch is answered with its edits, and with nothing if there are
// none. The plugin does not use the network and keeps no span.
//
//	SERVE_TRACING_PROCESSOR_PLUGIN=processors SERVE_TRACING_PLUGIN_CONFIG=processors=redact.yaml \
//		SERVE_TRACING_EXPORTER_PLUGIN=otlp my-service
//
// docs/reference/processors.md is the manual.
package main

import (
	"context"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

var spec = pluginsdk.Spec{
	Name:        "processors",
	Description: "filters, samples, edits and redacts spans before all exporters, as configured",
	Env:         []string{processors.EnvRayContext},
	Processors:  []pluginsdk.NewProcessor{configured},
}

func main() { pluginsdk.Main(spec) }

// configured warns if nothing is configured, because the plugin has no other use.
func configured(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	processor, err := processors.Configured(ctx, s)
	if chain, ok := processor.(pluginsdk.Chain); ok && len(chain) == 0 {
		s.Warn("processors", "the list is empty, so spans pass unchanged: list processors in the plugin's configuration")
	}
	return processor, err
}
