package spanpath

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/DataDog/dd-trace-go/v2/ddtrace/ext"
	ddotel "github.com/DataDog/dd-trace-go/v2/ddtrace/opentelemetry"
	"github.com/DataDog/dd-trace-go/v2/ddtrace/tracer"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/bench/internal/suite"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// row is one way of spans to a back end.
type row struct {
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
	// flush returns when all ended spans are delivered or given up. The sink has then taken
	// this number of spans, if it got all of them.
	flush func(ctx context.Context, taken uint64) error
	close func(ctx context.Context) error
	// batch is the number of spans that a call of produce's function makes. Zero is one.
	batch uint64
	// relay is the process whose CPU is the figure, instead of this process and plugins. Zero
	// for all other rows.
	relay int
	// host is our host. It is nil for the peers.
	host *host.Host
}

// plugins returns the account of each plugin of our host.
func (w *way) plugins() []host.ExporterStats {
	if w.host == nil {
		return nil
	}
	return w.host.Stats().Plugins()
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
	rowOursBoth  = "ours, plugins/otlp and a third party's plugin"
	rowOursDD    = "ours, plugins/datadog"
	rowUnchanged = "ours, a processor that changes nothing, no-op exporter"
	rowPatch     = "ours, a processor by patch, no-op exporter"
	rowWhole     = "ours, a processor by whole batches, no-op exporter"
	rowEncodeSDK = "transform + Marshal"
	rowEncode    = "ours, span to bytes"

	rowRelay         = "servetrace relay, plugins/otlp"
	rowCollector     = "Collector, otlp_http"
	rowRelayGzip     = "servetrace relay, plugins/otlp, gzip"
	rowCollectorGzip = "Collector, otlp_http, gzip"
)

// The files of plugins.
const (
	pluginOTLP  = "otlp"
	pluginThird = "thirdparty"
	pluginBench = "benchplugin"
	// processorBench is for the list of processors.
	processorBench = "benchprocessor"
)

// rows are described in bench/README.md.
var rows = map[string]row{
	rowFloor:   {nowhere: true, open: func(context.Context, order) (*way, error) { return sdkWay(nothing{}), nil }},
	rowBSPNoop: {nowhere: true, open: func(context.Context, order) (*way, error) { return bspWay(tracetest.NewNoopExporter(), nil) }},
	rowBSPHTTP: {open: openBSPHTTP(otlptracehttp.NoCompression)},
	rowBSPGzip: {open: openBSPHTTP(otlptracehttp.GzipCompression)},
	rowBSPGRPC: {open: func(ctx context.Context, o order) (*way, error) {
		return bspWay(otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(o.Sink.GRPC)))
	}},
	rowOursNoop:  {nowhere: true, open: ours(pluginBench, "BENCH_PLUGIN=discard")},
	rowOurs:      {open: ours(pluginOTLP)},
	rowOursGzip:  {open: ours(pluginOTLP, "OTEL_EXPORTER_OTLP_COMPRESSION=gzip")},
	rowOursRay:   {open: ours(pluginOTLP, "SERVE_RAY_CONTEXT=on")},
	rowOursFull:  {open: ours(pluginBench, "BENCH_PLUGIN=decode")},
	rowOursSDK:   {open: ours(pluginBench, "BENCH_PLUGIN=sdk")},
	rowOursBoth:  {open: ours(pluginOTLP + "," + pluginThird)},
	rowUnchanged: {nowhere: true, open: oursAnd(processorBench, pluginBench, "BENCH_PLUGIN=discard", "BENCH_PROCESSOR=unchanged")},
	rowPatch:     {nowhere: true, open: oursAnd(processorBench, pluginBench, "BENCH_PLUGIN=discard", "BENCH_PROCESSOR=patch")},
	rowWhole:     {nowhere: true, open: oursAnd(processorBench, pluginBench, "BENCH_PLUGIN=discard", "BENCH_PROCESSOR=whole")},
	rowDatadog:   {open: openDatadog(func(trace.TracerProvider) func(int) { return produceDatadog })},
	rowDDOTel:    {open: openDatadog(produceWith)},
	rowOursDD:    {open: ours("datadog", "SERVE_RAY_CONTEXT=off")},

	rowRelay:         {open: relays(startOurRelay, "none")},
	rowCollector:     {open: relays(startCollector, "none")},
	rowRelayGzip:     {open: relays(startOurRelay, "gzip")},
	rowCollectorGzip: {open: relays(startCollector, "gzip")},
}

// nothing is a processor that does nothing.
type nothing struct{}

func (nothing) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nothing) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (nothing) ForceFlush(context.Context) error                { return nil }
func (nothing) Shutdown(context.Context) error                  { return nil }

// bspWay returns the SDK's batch processor with the exporter. It blocks, so that no
// span is lost.
func bspWay(exporter sdktrace.SpanExporter, err error) (*way, error) {
	if err != nil {
		return nil, err
	}
	return sdkWay(sdktrace.NewBatchSpanProcessor(exporter, sdktrace.WithBlocking())), nil
}

func openBSPHTTP(compression otlptracehttp.Compression) opener {
	return func(ctx context.Context, o order) (*way, error) {
		return bspWay(otlptracehttp.New(ctx, otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(o.Sink.HTTP), otlptracehttp.WithCompression(compression)))
	}
}

// ours opens our host with plugins, whose files are separated by commas, and their
// environment variables.
func ours(plugins string, variables ...string) opener { return oursAnd("", plugins, variables...) }

// oursAnd is ours with a processor plugin, unless its file is empty. Its variable chooses
// the form of its answers.
func oursAnd(processor, plugins string, variables ...string) opener {
	return func(ctx context.Context, o order) (*way, error) {
		folder := filepath.Join(o.Bin, "plugins")
		var paths []string
		for file := range strings.SplitSeq(plugins, ",") {
			name := "plugin"
			if file != plugins {
				name = file
			}
			paths = append(paths, name+"="+filepath.Join(folder, file))
		}
		processors := ""
		if processor != "" {
			processors = "processor=" + filepath.Join(folder, processor)
		}
		h, err := host.New(host.Config{
			Plugins:    strings.Join(paths, ","),
			Processors: processors,
			Environ: append(variables, "PATH=/usr/bin:/bin",
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+o.Sink.HTTP+o.Path, "DD_TRACE_AGENT_URL=http://"+o.Sink.HTTP),
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
		if err := w.awaitReady(); err != nil {
			_ = w.close(ctx)
			return nil, err
		}
		return w, nil
	}
}

// awaitReady waits until all plugins are ready.
func (w *way) awaitReady() error {
	deadline := time.Now().Add(10 * time.Second)
	for i := range w.plugins() {
		for {
			x := w.plugins()[i]
			if x.State == host.StateReady {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("plugin %s is %v: %s", x.Path, x.State, x.LastError)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func newProvider(processor sdktrace.SpanProcessor) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "bench"))),
		sdktrace.WithSpanProcessor(processor))
}

// sdkWay returns the SDK with the processor.
func sdkWay(processor sdktrace.SpanProcessor) *way {
	provider := newProvider(processor)
	return &way{
		produce:   func() func(int) { return produceWith(provider) },
		processor: processor,
		flush:     func(ctx context.Context, _ uint64) error { return provider.ForceFlush(ctx) },
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

// openDatadog starts Datadog's tracer with its defaults, statistics included. newSpans
// returns the function that makes spans. Its argument is the tracer behind
// OpenTelemetry's API.
func openDatadog(newSpans func(trace.TracerProvider) func(i int)) opener {
	return func(_ context.Context, o order) (*way, error) {
		provider := ddotel.NewTracerProvider(tracer.WithAgentURL("http://"+o.Sink.HTTP), tracer.WithService("bench"),
			tracer.WithLogStartup(false), tracer.WithLogger(silent{}))
		return &way{
			produce: func() func(int) { return newSpans(provider) },
			// A flush may overtake spans on their way to the tracer's worker. Spans that its
			// queue has dropped never arrive, and are an error.
			flush: func(ctx context.Context, taken uint64) error { return awaitSink(ctx, o.Sink, taken, tracer.Flush) },
			close: func(context.Context) error { return provider.Shutdown() },
		}, nil
	}
}

type silent struct{}

func (silent) Log(string) {}

// produceDatadog makes the span of produceWith.
func produceDatadog(i int) {
	span := tracer.StartSpan("http.server.request", tracer.ResourceName("GET /api/{id}"),
		tracer.SpanType(ext.SpanTypeWeb), tracer.Tag(ext.SpanKind, ext.SpanKindServer))
	span.SetTag("http.method", "GET")
	span.SetTag("http.route", "/api/{id}")
	span.SetTag("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8")
	span.SetTag("serve.deployment", "HelloWorld")
	span.SetTag("http.status_code", 200)
	span.SetTag("serve.queue_wait_ms", i)
	span.Finish()
}

// requestSpans is the number of spans of a request: the SDK's default.
const requestSpans = 512

// endedSpans returns the spans of a request.
func endedSpans() []sdktrace.ReadOnlySpan {
	recorder := tracetest.NewSpanRecorder()
	span := produceWith(newProvider(recorder))
	for i := range requestSpans {
		span(i)
	}
	return recorder.Ended()
}

// measureEncoding times the encoding of finished spans to the bytes of a request, by the
// host's encoder or by the SDK's OTLP exporters: spans become messages, messages become
// bytes.
func measureEncoding(ctx context.Context, o order) (suite.Sample, error) {
	spans := endedSpans()
	keeper := &keepingClient{}
	exporter, err := otlptrace.New(ctx, keeper)
	if err != nil {
		return nil, err
	}
	var failed error
	result := testing.Benchmark(func(b *testing.B) {
		var e sdkspan.Encoder
		var body []byte
		for b.Loop() {
			if o.Row == rowEncode {
				e.Reset()
				for _, s := range spans {
					e.Append(s)
				}
				body = e.AppendRequest(body[:0])
				continue
			}
			if failed = exporter.ExportSpans(ctx, spans); failed == nil {
				_, failed = proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: keeper.got})
			}
		}
	})
	n := float64(result.N * requestSpans)
	return suite.Sample{
		encode:    float64(result.T) / n,
		heapBytes: float64(result.AllocedBytesPerOp()) / requestSpans,
		allocs:    float64(result.AllocsPerOp()) / requestSpans,
	}, failed
}

// keepingClient keeps the messages of the exporter.
type keepingClient struct{ got []*tracepb.ResourceSpans }

func (*keepingClient) Start(context.Context) error { return nil }
func (*keepingClient) Stop(context.Context) error  { return nil }

func (c *keepingClient) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.got = spans
	return nil
}
