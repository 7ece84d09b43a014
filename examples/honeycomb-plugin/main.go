// Command honeycomb-plugin is the custom exporter of Ray Serve's tracing guide:
// it sends spans to Honeycomb. It proves that an exporter for a vendor is the
// OTLP exporter with an address and some headers, in a few lines. What the guide
// writes as
//
//	def default_tracing_exporter() -> List[SpanProcessor]:
//	    exporter = HoneycombSpanExporter(
//	        service_name=HONEYCOMB_SERVICE_NAME,
//	        writekey=HONEYCOMB_WRITE_KEY,
//	        dataset=HONEYCOMB_DATASET_NAME,
//	    )
//	    return [BatchSpanProcessor(exporter)]
//
// and names as exporter_import_path is here the Spec below, named, once it is
// built, in SERVE_TRACING_EXPORTER_PLUGIN or, in the service file, as
// exporter_plugin. HoneycombSpanExporter is no more; Honeycomb takes OTLP.
//
//	HONEYCOMB_WRITE_KEY=xxxxxxxxxxxxxxxxxxxxxx HONEYCOMB_SERVICE_NAME=my-service-name \
//	  SERVE_TRACING_EXPORTER_PLUGIN=bin/honeycomb-plugin bin/hello
//	curl http://localhost:8000/
//
// It reads:
//
//	HONEYCOMB_WRITE_KEY     the key, or HONEYCOMB_API_KEY, as Honeycomb calls it
//	                        today; required
//	HONEYCOMB_SERVICE_NAME  service.name of the spans; empty: the service's own
//	HONEYCOMB_DATASET_NAME  for a key of Honeycomb Classic only, which has
//	                        datasets by this name; empty: by service.name
//	OTEL_EXPORTER_OTLP_*    over what is set here: an endpoint other than
//	                        https://api.honeycomb.io (Honeycomb in Europe, or
//	                        http://localhost:4318, a collector), more headers
//
// Its life is pluginsdk's and that of the OTLP exporter. It holds no span and
// retries nothing: the host does. The key goes into a header and nowhere else.
// Without a key the plugin is not ready and the service's log says what to do;
// spans wait meanwhile, within the host's bound.
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

// endpoint is Honeycomb's instance in the United States.
const endpoint = "https://api.honeycomb.io"

// newExporter builds the OTLP exporter with what Honeycomb wants.
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

// newServiceName names the service in the resource of every span.
func newServiceName(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	name := s.Getenv("HONEYCOMB_SERVICE_NAME")
	if name == "" {
		return pluginsdk.Chain{}, nil // batches go by undecoded
	}
	return pluginsdk.EachSpan("service-name", func(span pluginsdk.Span) error {
		span.Resource().SetAttributes(attribute.String(semconv.ServiceName, name))
		return nil
	})(ctx, s)
}
