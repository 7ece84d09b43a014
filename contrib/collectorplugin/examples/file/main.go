// Command file is a plugin that writes spans by the Collector's exporter file.
//
//	file:
//	  path: spans.json
package main

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"

	"github.com/servetrace/servetrace/contrib/collectorplugin"
)

func main() { collectorplugin.Main(fileexporter.NewFactory()) }
