// Command ottl is a processor plugin that edits and drops spans by statements in OTTL, the
// language of the Collector's processors transform and filter. It runs these two processors,
// transform first, with their configurations:
//
//	transform:
//	  error_mode: ignore
//	  trace_statements:
//	    - set(span.attributes["region"], "eu") where resource.attributes["host.name"] != nil
//	filter:
//	  error_mode: ignore
//	  trace_conditions:
//	    - span.attributes["http.route"] == "/health"
//
// The plugin has no other code. docs/how-to/edit-spans-with-ottl.md is the manual.
package main

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/filterprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"

	"github.com/servetrace/servetrace/contrib/collectorplugin"
	"github.com/servetrace/servetrace/pluginsdk"
)

var spec = collectorplugin.ProcessorSpec("ottl", transformprocessor.NewFactory(), filterprocessor.NewFactory())

func main() { pluginsdk.Main(spec) }
