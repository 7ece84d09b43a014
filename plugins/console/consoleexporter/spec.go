package consoleexporter

import (
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// Spec declares the plugin console. plugins/console is its executable, and an executable of
// yours may have several plugins (pluginsdk.MainByName).
var Spec = pluginsdk.Spec{
	Name:        "console",
	Description: "writes spans as JSON, or draws traces, to standard output; or JSON to a folder",
	Env:         append(EnvPatterns(), processors.EnvRayContext),
	// One call at a time, so that batches are written in order. Half a megabyte of JSON
	// is written within a call's deadline even if the reader of standard output takes only
	// 100 kB/s.
	Limits:     pluginsdk.Limits{MaxConcurrency: 1, MaxBatchSpans: 512},
	Processors: []pluginsdk.NewProcessor{processors.Configured},
	Exporter:   New,
}
