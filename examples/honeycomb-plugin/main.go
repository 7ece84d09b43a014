// Command honeycomb-plugin is the custom exporter of Ray Serve's tracing guide:
// it sends spans to Honeycomb. It proves that an exporter for a vendor can be the OTLP
// exporter with an address and some headers, in a few lines. The guide has this
// function:
//
//	def default_tracing_exporter() -> List[SpanProcessor]:
//	    exporter = HoneycombSpanExporter(
//	        service_name=HONEYCOMB_SERVICE_NAME,
//	        writekey=HONEYCOMB_WRITE_KEY,
//	        dataset=HONEYCOMB_DATASET_NAME,
//	    )
//	    return [BatchSpanProcessor(exporter)]
//
// and names it in exporter_import_path. Here it is the Spec below. The variable
// SERVE_TRACING_EXPORTER_PLUGIN, or exporter_plugin in the service file, names the built
// plugin. HoneycombSpanExporter does not exist any more; Honeycomb accepts OTLP.
//
//	HONEYCOMB_WRITE_KEY=xxxxxxxxxxxxxxxxxxxxxx HONEYCOMB_SERVICE_NAME=my-service-name \
//	  SERVE_TRACING_EXPORTER_PLUGIN=bin/honeycomb-plugin bin/hello
//	curl http://localhost:8000/
//
// It reads:
//
//	HONEYCOMB_WRITE_KEY     the key, required; or HONEYCOMB_API_KEY, its current
//	                        name at Honeycomb
//	HONEYCOMB_SERVICE_NAME  service.name of the spans; empty: the service's own
//	HONEYCOMB_DATASET_NAME  the dataset, for keys of Honeycomb Classic only;
//	                        empty: service.name
//	OTEL_EXPORTER_OTLP_*    override these settings: another endpoint than
//	                        https://api.honeycomb.io (Honeycomb in Europe, or a
//	                        collector at http://localhost:4318), more headers
//
// Package pluginsdk and the OTLP exporter run the plugin. It queues no spans and
// retries nothing, because the host does. The key is sent in a header and used nowhere
// else. Without a key the plugin does not become ready, and the service's log explains
// how to set it; spans wait meanwhile, within the host's bound.
package main

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
)

var spec = pluginsdk.Spec{
	Name:        "honeycomb",
	Description: "sends spans to Honeycomb",
	Env:         append(otlpexporter.EnvPatterns(), "HONEYCOMB_*"),
	Processors:  []pluginsdk.NewProcessor{newServiceName},
	Exporter:    newExporter,
}

func main() { pluginsdk.Main(spec) }

// endpoint is Honeycomb's endpoint in the United States.
const endpoint = "https://api.honeycomb.io"

// newExporter returns the OTLP exporter with Honeycomb's defaults.
func newExporter(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	key := cmp.Or(s.Getenv("HONEYCOMB_WRITE_KEY"), s.Getenv("HONEYCOMB_API_KEY"))
	if key == "" {
		return nil, &pluginsdk.ConfigError{Path: "HONEYCOMB_WRITE_KEY",
			Err: errors.New("is empty, and so is HONEYCOMB_API_KEY: set one to a key of your Honeycomb environment")}
	}
	headers := map[string]string{"x-honeycomb-team": key}
	if dataset := s.Getenv("HONEYCOMB_DATASET_NAME"); dataset != "" {
		headers["x-honeycomb-dataset"] = dataset
	}
	return otlpexporter.NewWith(ctx, s, otlpexporter.Defaults{Endpoint: endpoint, Headers: headers})
}

// newServiceName returns a processor that sets the service name in the resource of
// every span.
func newServiceName(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	name := s.Getenv("HONEYCOMB_SERVICE_NAME")
	if name == "" {
		return pluginsdk.Chain{}, nil // batches are forwarded without decoding
	}
	return pluginsdk.EachSpan("service-name", func(span pluginsdk.Span) error {
		span.Resource().SetAttributes(attribute.String(semconv.ServiceName, name))
		return nil
	})(ctx, s)
}
