// Command console is the exporter plugin for development. It prints each span as
// indented JSON, in the form of Ray Serve's tracing guide, or draws each trace as a
// waterfall.
//
// Its life: pluginsdk.Main performs the handshake with the host. processors.Configured
// and consoleexporter.New read the variables below and the plugin's configuration. Each
// batch is written before it is acknowledged. The plugin does not use the network, and
// keeps no spans between batches.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=./console my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=./console SERVE_CONSOLE_FORMAT=pretty SERVE_RAY_CONTEXT=on my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=./console SERVE_CONSOLE_OUTPUT=./spans my-service
//
// SERVE_CONSOLE_OUTPUT is stdout (the default), or a folder with a file for each
// component. SERVE_CONSOLE_FORMAT is json (the default) or pretty.
// SERVE_RAY_CONTEXT=on puts Ray's ids on every span. Open consoleexporter/exporter.go
// first.
package main

import (
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

func main() { pluginsdk.Main(consoleexporter.Spec) }
