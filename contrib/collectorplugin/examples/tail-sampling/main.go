// Command tail-sampling is a plugin that samples whole traces by the Collector's processor
// tail_sampling, and sends the kept traces by its exporter otlp_http.
//
//	tail_sampling:
//	  decision_wait: 10s
//	  policies:
//	    - {name: errors, type: status_code, status_code: {status_codes: [ERROR]}}
//	otlp_http:
//	  endpoint: http://collector:4318
package main

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/tailsamplingprocessor"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"

	"github.com/servetrace/servetrace/contrib/collectorplugin"
	"github.com/servetrace/servetrace/pluginsdk"
)

func main() {
	spec := collectorplugin.Spec(otlphttpexporter.NewFactory(), tailsamplingprocessor.NewFactory())
	spec.Name = "tail-sampling"
	pluginsdk.Main(spec)
}
