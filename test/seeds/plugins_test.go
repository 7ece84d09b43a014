package seeds

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/plugins/otlp/otlpexporter"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

// plugins are the plugins that this test binary can be, written as users of the guide
// would write them in Go.
var plugins = map[string]pluginsdk.Spec{
	// The guide's exporter_dd.py: RayServeSpanProcessor, an on_start hook.
	"on-start": {
		Name: "on-start", Env: otlpexporter.EnvPatterns(), Exporter: otlpexporter.New,
		Processors: []pluginsdk.NewProcessor{otelplugin.Processors(func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
			return []sdktrace.SpanProcessor{rayServeSpanProcessor{}}, nil
		})},
	},
	// The guide's datadog_span_processor: BatchSpanProcessor(OTLPSpanExporter()).
	"batch-otlp": {
		Name: "batch-otlp", Env: []string{"OTEL_EXPORTER_OTLP_*"}, Limits: pluginsdk.Limits{MaxConcurrency: 1},
		Exporter: otelplugin.Pipeline(func(ctx context.Context, _ pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
			exporter, err := otlptracehttp.New(ctx)
			if err != nil {
				return nil, err
			}
			return []sdktrace.SpanProcessor{sdktrace.NewBatchSpanProcessor(exporter)}, nil
		}),
	},
}

// rayServeSpanProcessor is the guide's processor: it sets attributes on each span that
// starts.
type rayServeSpanProcessor struct{}

func (rayServeSpanProcessor) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	for _, kv := range s.Attributes() {
		if kv.Key == "serve.request_id" {
			s.SetAttributes(attribute.String("ray.request_id", kv.Value.AsString()))
		}
	}
}
func (rayServeSpanProcessor) OnEnd(sdktrace.ReadOnlySpan)      {}
func (rayServeSpanProcessor) ForceFlush(context.Context) error { return nil }
func (rayServeSpanProcessor) Shutdown(context.Context) error   { return nil }
