// Command console is the exporter plugin that a user meets first: it writes
// each span as indented JSON, in the form that Ray Serve's tracing guide shows.
//
// Its life: pluginsdk.Main does the handshake, then consoleexporter.New reads
// the two variables below, then each batch is written before it is
// acknowledged. It sends nothing over a network and keeps no span.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=./console my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=./console SERVE_CONSOLE_OUTPUT=./spans my-service
//
// SERVE_CONSOLE_OUTPUT is stdout (the default), stderr, or a folder that gets
// one file for each component; SERVE_CONSOLE_FORMAT is json. Open
// consoleexporter/exporter.go for what is written where.
package main

import (
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
)

var spec = pluginsdk.Spec{
	Name:        "console",
	Description: "writes each span as JSON to standard output, standard error or a folder",
	Env:         consoleexporter.EnvPatterns(),
	// One at a time, so that a batch is written before the next.
	Limits:   pluginsdk.Limits{MaxConcurrency: 1},
	Exporter: consoleexporter.New,
}

func main() { pluginsdk.Main(spec) }
