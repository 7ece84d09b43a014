package contrib

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/processors/baggagecopy"
	"go.opentelemetry.io/contrib/zpages"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

// prefix marks a link to this test binary that is a plugin.
const prefix = "contrib-"

func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), prefix); ok {
		spec, known := plugins[name]
		if !known {
			fmt.Fprintf(os.Stderr, "no plugin %q\n", name)
			os.Exit(2)
		}
		spec.Name = name
		pluginsdk.Main(spec)
		return
	}
	if os.Getenv(envService) != "" {
		runService()
		return
	}
	goleak.VerifyTestMain(m)
}

// envPage is where the zpages plugin writes its page.
const envPage = "CONTRIB_PAGE"

// plugins are the plugins of the tests, each as an author would write it.
var plugins = map[string]pluginsdk.Spec{
	"stdouttrace": {Exporter: otelplugin.Exporter(
		func(_ context.Context, s pluginsdk.Setup) (sdktrace.SpanExporter, error) {
			return stdouttrace.New(stdouttrace.WithWriter(s.Stdout))
		},
	)},
	"exporter": {
		Env: []string{"OTEL_EXPORTER_OTLP_*"},
		Exporter: otelplugin.Exporter(func(ctx context.Context, _ pluginsdk.Setup) (sdktrace.SpanExporter, error) {
			return otlptracehttp.New(ctx, withoutRetry)
		}),
	},
	"otlp": {Env: []string{"OTEL_EXPORTER_OTLP_*"}, Exporter: otelplugin.Client(otlpClient)},
	"grpc": {Env: []string{"OTEL_EXPORTER_OTLP_*"}, Exporter: otelplugin.Client(
		func(context.Context, pluginsdk.Setup) (otelplugin.TraceClient, error) {
			return otlptracegrpc.NewClient(grpcWithoutRetry), nil
		},
	)},
	"grpc-batch": {Env: []string{"OTEL_EXPORTER_OTLP_*"}, Exporter: otelplugin.Pipeline(
		func(ctx context.Context, _ pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
			exporter, err := otlptracegrpc.New(ctx, grpcWithoutRetry)
			if err != nil {
				return nil, err
			}
			return []sdktrace.SpanProcessor{sdktrace.NewBatchSpanProcessor(exporter)}, nil
		},
	)},
	"enrich": {
		Env:        []string{"OTEL_EXPORTER_OTLP_*"},
		Processors: []pluginsdk.NewProcessor{otelplugin.Processors(enrichers)},
		Exporter:   otelplugin.Client(otlpClient),
	},
	"guide": {Env: []string{"OTEL_EXPORTER_OTLP_*"}, Exporter: otelplugin.Pipeline(guide)},
	"zpages": {
		Env:      []string{envPage},
		Exporter: otelplugin.Pipeline(pages),
	},
}

// These leave retries to the host.
var (
	withoutRetry     = otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false})
	grpcWithoutRetry = otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false})
)

func otlpClient(context.Context, pluginsdk.Setup) (otelplugin.TraceClient, error) {
	return otlptracehttp.NewClient(withoutRetry), nil
}

// enrichers returns processors that write in OnStart: OpenTelemetry's, one that
// adds attributes to every span, and one in the manner of the Anyscale guide.
func enrichers(_ context.Context, s pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
	return []sdktrace.SpanProcessor{
		baggagecopy.NewSpanProcessor(baggagecopy.AllowAllMembers),
		labels{attribute.String("plugin", s.Context.PluginName), attribute.String("http.route", "from the plugin")},
		rayServe{},
	}, nil
}

// labels is a processor that sets the same attributes on every span that starts.
type labels []attribute.KeyValue

func (l labels) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) { span.SetAttributes(l...) }
func (labels) OnEnd(sdktrace.ReadOnlySpan)                              {}
func (labels) Shutdown(context.Context) error                           { return nil }
func (labels) ForceFlush(context.Context) error                         { return nil }

// guide is this exporter function of the Anyscale guide, in Go:
//
//	return [RayServeSpanProcessor(), BatchSpanProcessor(OTLPSpanExporter())]
func guide(ctx context.Context, _ pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
	exporter, err := otlptracehttp.New(ctx, withoutRetry)
	if err != nil {
		return nil, err
	}
	return []sdktrace.SpanProcessor{rayServe{}, sdktrace.NewBatchSpanProcessor(exporter)}, nil
}

// rayServe is the guide's RayServeSpanProcessor.
type rayServe struct{}

func (rayServe) OnStart(parent context.Context, span sdktrace.ReadWriteSpan) {
	for _, kv := range span.Attributes() {
		if kv.Key == "serve.request_id" {
			span.SetAttributes(attribute.String("ray.request_id", kv.Value.AsString()))
		}
	}
	if sc := trace.SpanContextFromContext(parent); sc.IsValid() {
		span.AddEvent("parent", trace.WithAttributes(attribute.String("id", sc.SpanID().String())))
	}
}
func (rayServe) OnEnd(sdktrace.ReadOnlySpan)      {}
func (rayServe) Shutdown(context.Context) error   { return nil }
func (rayServe) ForceFlush(context.Context) error { return nil }

// pages is OpenTelemetry's zpages, and something that writes their page to a
// file with every piece of a batch.
func pages(_ context.Context, s pluginsdk.Setup) ([]sdktrace.SpanProcessor, error) {
	watcher := zpages.NewSpanProcessor()
	return []sdktrace.SpanProcessor{watcher, pageWriter{zpages.NewTracezHandler(watcher), s.Getenv(envPage)}}, nil
}

type pageWriter struct {
	page http.Handler
	path string
}

func (pageWriter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (pageWriter) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (pageWriter) Shutdown(context.Context) error                  { return nil }
func (p pageWriter) ForceFlush(context.Context) error {
	answer := httptest.NewRecorder()
	p.page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/tracez", nil))
	return os.WriteFile(p.path, answer.Body.Bytes(), 0o600)
}
