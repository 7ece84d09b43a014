// Command otlphttp is a plugin that sends spans by the Collector's exporter otlp_http.
//
//	otlp_http:
//	  endpoint: http://collector:4318
package main

import (
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"

	"github.com/servetrace/servetrace/contrib/collectorplugin"
)

func main() { collectorplugin.Main(otlphttpexporter.NewFactory()) }
