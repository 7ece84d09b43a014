// Command processors is the processor plugin for operators. It runs the ready-made
// processors of its configuration (filter, sample, raycontext, attributes, redact) before
// all exporters, so that each exporter gets spans without secrets, for example.
//
// Its life: pluginsdk.Main performs the handshake with the host. processors.Configured
// reads the configuration. The answer to each batch has the edits, or nothing if the
// batch is unchanged. The plugin does not use the network, and keeps no spans between
// batches.
//
//	SERVE_TRACING_PROCESSOR_PLUGIN=processors SERVE_TRACING_PLUGIN_CONFIG=processors=redact.yaml \
//		SERVE_TRACING_EXPORTER_PLUGIN=otlp my-service
//
// docs/reference/processors.md is the manual.
package main

import (
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

func main() { pluginsdk.Main(processors.Spec) }
