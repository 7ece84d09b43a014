package spanpath

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/host"
)

// row is one way of spans to a back end.
type row struct {
	name, doc string
	// nowhere means that the row delivers nothing. Its spans count as delivered when
	// they end.
	nowhere bool
	open    opener
}

type opener func(ctx context.Context, o order) (*way, error)

// way is an open row.
type way struct {
	// produce returns a function that makes and ends the i-th span of a producer. Each
	// producer has its own function.
	produce func() func(i int)
	// processor receives finished spans. It is nil for rows without the SDK.
	processor sdktrace.SpanProcessor
	// flush returns when all ended spans are delivered or given up.
	flush func(ctx context.Context) error
	close func(ctx context.Context) error
	// host is our host. It is nil for the peers.
	host *host.Host
}

// plugins returns the process ids of the plugins, which change with a crash.
func (w *way) plugins() (ids []int) {
	if w.host != nil {
		for _, x := range w.host.Stats().Exporters {
			ids = append(ids, x.PID)
		}
	}
	return ids
}

// The names of the rows.
const (
	rowFloor     = "SDK floor"
	rowBSPNoop   = "BSP, no-op exporter"
	rowBSPHTTP   = "BSP + otlptracehttp"
	rowBSPGzip   = "BSP + otlptracehttp, gzip"
	rowBSPGRPC   = "BSP + otlptracegrpc"
	rowDatadog   = "dd-trace-go"
	rowDDOTel    = "dd-trace-go, OpenTelemetry's API"
	rowOurs      = "ours"
	rowOursNoop  = "ours, no-op exporter"
	rowOursGzip  = "ours, gzip"
	rowOursRay   = "ours, raycontext"
	rowOursFull  = "ours, full decode"
	rowOursSDK   = "ours, otlptracehttp in the plugin"
	rowOursThird = "ours, a third party's plugin"
	rowOursDD    = "ours, plugins/datadog"
	rowEncodeSDK = "transform + Marshal"
	rowEncode    = "ours, span to bytes"
)

var rows = []row{
	{name: rowFloor, doc: "the SDK with a processor that does nothing: the cost of the SDK's span", nowhere: true, open: openFloor},
	{name: rowBSPNoop, doc: "the SDK's batch processor with an exporter that does nothing", nowhere: true, open: openBSPNoop},
	{name: rowBSPHTTP, doc: "the SDK's batch processor with its OTLP/HTTP exporter, in process", open: openBSPHTTP(otlptracehttp.NoCompression)},
	{name: rowBSPGzip, doc: "the same, compressed", open: openBSPHTTP(otlptracehttp.GzipCompression)},
	{name: rowBSPGRPC, doc: "the SDK's batch processor with its OTLP/gRPC exporter, in process", open: openBSPGRPC},
	{name: rowOursNoop, doc: "our host and a plugin whose exporter does nothing", nowhere: true, open: ours("discard")},
	{name: rowOurs, doc: "our host and plugins/otlp, which passes the bytes on", open: ours("otlp")},
	{name: rowOursGzip, doc: "the same, compressed by the plugin", open: ours("otlp", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip")},
	{name: rowOursRay, doc: "the same with the processor raycontext, which edits the bytes of every span", open: ours("otlp", "SERVE_RAY_CONTEXT=on")},
	{name: rowOursFull, doc: "our host and a plugin that decodes every span into the SDK's, and encodes it again by our encoder", open: ours("decode")},
	{name: rowOursSDK, doc: "our host and a plugin around the SDK's own OTLP/HTTP exporter, unchanged: decoded, transformed, marshalled", open: ours("sdkexporter")},
	{name: rowOursThird, doc: "our host and test/contrib/otlp-client-plugin: a module of its own, on pluginsdk and otlptracehttp alone", open: ours("thirdparty")},
	{name: rowDatadog, doc: "Datadog's own tracer, in process: the same span by its API", open: openDatadog(func(trace.TracerProvider) func(int) { return produceDatadog })},
	{name: rowDDOTel, doc: "the same tracer behind OpenTelemetry's API, so that the program is the same as in the other rows", open: openDatadog(produceWith)},
	{name: rowOursDD, doc: "our host and plugins/datadog, without Ray's ids", open: ours("datadog", "SERVE_RAY_CONTEXT=off")},
}

func findRow(name string) (row, error) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if i < 0 {
		return row{}, fmt.Errorf("no row %q", name)
	}
	return rows[i], nil
}

// nothing is a processor that does nothing.
type nothing struct{}

func (nothing) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nothing) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (nothing) ForceFlush(context.Context) error                { return nil }
func (nothing) Shutdown(context.Context) error                  { return nil }

func openFloor(context.Context, order) (*way, error) { return sdkWay(nothing{}), nil }

// bspWay returns the SDK's batch processor with the exporter. It blocks, so that no
// span is lost.
func bspWay(exporter sdktrace.SpanExporter, err error) (*way, error) {
	if err != nil {
		return nil, err
	}
	return sdkWay(sdktrace.NewBatchSpanProcessor(exporter, sdktrace.WithBlocking())), nil
}

type noExporter struct{}

func (noExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (noExporter) Shutdown(context.Context) error                             { return nil }

func openBSPNoop(context.Context, order) (*way, error) { return bspWay(noExporter{}, nil) }

func openBSPHTTP(compression otlptracehttp.Compression) opener {
	return func(ctx context.Context, o order) (*way, error) {
		return bspWay(otlptracehttp.New(ctx, otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(o.Sink.HTTP), otlptracehttp.WithCompression(compression)))
	}
}

func openBSPGRPC(ctx context.Context, o order) (*way, error) {
	return bspWay(otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(o.Sink.GRPC)))
}

// ours opens our host with a plugin and its environment variables.
func ours(plugin string, variables ...string) opener {
	return func(ctx context.Context, o order) (*way, error) {
		h, err := host.New(host.Config{
			Plugins: filepath.Join(o.Bin, "plugins", plugin),
			Environ: append(variables, "PATH=/usr/bin:/bin",
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+o.Sink.HTTP, "DD_TRACE_AGENT_URL=http://"+o.Sink.Datadog),
			// Others may have write access to the folder of the benchmark's binaries.
			AllowWritable: true,
		}, host.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err
		}
		if err := h.Start(ctx); err != nil {
			return nil, err
		}
		w := sdkWay(h)
		w.host = h
		if err := awaitReady(ctx, h); err != nil {
			_ = w.close(ctx)
			return nil, err
		}
		return w, nil
	}
}

func awaitReady(ctx context.Context, h *host.Host) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		x := h.Stats().Exporters[0]
		if x.State == host.StateReady {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("plugin %s is %v: %s", x.Path, x.State, x.LastError)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

func newProvider(processor sdktrace.SpanProcessor) *sdktrace.TracerProvider {
	limits := sdktrace.NewSpanLimits()
	limits.AttributeCountLimit = 256
	return sdktrace.NewTracerProvider(
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "bench"))),
		sdktrace.WithSpanProcessor(processor))
}

// sdkWay returns the SDK with the processor.
func sdkWay(processor sdktrace.SpanProcessor) *way {
	provider := newProvider(processor)
	return &way{
		produce:   func() func(int) { return produceWith(provider) },
		processor: processor,
		flush:     provider.ForceFlush,
		close:     provider.Shutdown,
	}
}

// produceWith returns a function that makes the span of all rows: a root server span
// with four texts and two integers, some 320 bytes as OTLP.
func produceWith(provider trace.TracerProvider) func(i int) {
	tracer := provider.Tracer("github.com/servetrace/servetrace/serving")
	ctx := context.Background()
	return func(i int) {
		_, span := tracer.Start(ctx, "proxy_http_request GET /api/{id}", trace.WithSpanKind(trace.SpanKindServer))
		span.SetAttributes(
			attribute.String("http.request.method", "GET"),
			attribute.String("http.route", "/api/{id}"),
			attribute.String("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8"),
			attribute.String("serve.deployment", "HelloWorld"),
			attribute.Int("http.response.status_code", 200),
			attribute.Int("serve.queue_wait_ms", i))
		span.End()
	}
}
