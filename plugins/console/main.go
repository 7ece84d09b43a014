// Command console is the exporter plugin that a user meets first: it prints each
// span as indented JSON, in the form that Ray Serve's tracing guide shows, or
// draws each trace as a waterfall.
//
// Its life: pluginsdk.Main does the handshake, then processors.Configured and
// consoleexporter.New read the variables below and the plugin's document, then
// each batch is written before it is acknowledged. It sends nothing over a
// network and keeps no span.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=./console my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=./console SERVE_CONSOLE_FORMAT=pretty SERVE_RAY_CONTEXT=on my-service
//	SERVE_TRACING_EXPORTER_PLUGIN=./console SERVE_CONSOLE_OUTPUT=./spans my-service
//
// SERVE_CONSOLE_OUTPUT is stdout (the default), or a folder that gets one file for
// each component; SERVE_CONSOLE_FORMAT is json (the default) or
// pretty; SERVE_RAY_CONTEXT=on puts Ray's ids on every span. Open
// consoleexporter/exporter.go for what is written where.
package main

import (
	"github.com/servetrace/servetrace/plugins/console/consoleexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

var spec = pluginsdk.Spec{
	Name:        "console",
	Description: "writes spans as JSON, or draws traces, to standard output; or JSON to a folder",
	Env:         append(consoleexporter.EnvPatterns(), processors.EnvRayContext),
	// One at a time, so that a batch is written before the next. Half a megabyte
	// of JSON is written within the deadline of a call also where standard output
	// is read at 100 kB/s.
	Limits:     pluginsdk.Limits{MaxConcurrency: 1, MaxBatchSpans: 512},
	Processors: []pluginsdk.NewProcessor{processors.Configured},
	Exporter:   consoleexporter.New,
}

func main() { pluginsdk.Main(spec) }
