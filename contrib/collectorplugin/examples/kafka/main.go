// Command kafka is a plugin that sends spans by the Collector's exporter kafka.
//
//	kafka:
//	  brokers: [broker:9092]
//	  traces: {topic: spans}
package main

import (
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/kafkaexporter"

	"github.com/servetrace/servetrace/contrib/collectorplugin"
	"github.com/servetrace/servetrace/pluginsdk"
)

func main() {
	spec := collectorplugin.Spec(kafkaexporter.NewFactory())
	spec.Env = append(spec.Env, "AWS_*") // for sasl.mechanism AWS_MSK_IAM_OAUTHBEARER
	pluginsdk.Main(spec)
}
