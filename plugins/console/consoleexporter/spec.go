package consoleexporter

import (
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/processors"
)

// Spec declares the plugin "console". Its executable is in plugins/console. Another
// executable can combine it with further plugins, by pluginsdk.MainByName.
var Spec = pluginsdk.Spec{
	Name:        "console",
	Description: "writes spans as JSON, or draws traces, to standard output; or JSON to a folder",
	Env:         append(EnvPatterns(), processors.EnvRayContext),
	// MaxConcurrency is 1, so that batches are written in order. MaxBatchSpans bounds a
	// batch to about half a megabyte of JSON. That can be written within a call's deadline
	// even if the reader of standard output takes only 100 kB/s.
	Limits:     pluginsdk.Limits{MaxConcurrency: 1, MaxBatchSpans: 512},
	Processors: []pluginsdk.NewProcessor{processors.Configured},
	Exporter:   New,
}
