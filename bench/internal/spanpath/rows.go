package spanpath

import (
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/host"
)

// row is a way for spans.
type row struct {
	name, doc string
	// nowhere: it delivers nothing, and its spans count as delivered when they
	// have ended.
	nowhere bool
	open    func(ctx context.Context, r rig) (*way, error)
}

// rig is what a row is opened with.
type rig struct {
	sink sink.Addresses
	bin  string
	// lossy: the row runs as it would by default, and drops what it must.
	lossy bool
}

// way is an open row.
type way struct {
	// produce gives a function that makes and ends one span, the i-th of a
	// producer; each producer has its own.
	produce func() func(i int)
	// processor takes finished spans; nil for rows without the SDK.
	processor sdktrace.SpanProcessor
	// flush returns when all that has ended is delivered, or given up.
	flush func(ctx context.Context) error
	close func(ctx context.Context) error
	// host is ours, nil for the peers.
	host *host.Host
	// plugins are the processes of plugins, nil for rows that have none; with our
	// host they are asked for again, for it may have others.
	plugins func() []int
}

// The names of the rows, which claims refer to.
const (
	rowNoop      = "no-op API"
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

// rows are all of them.
var rows = slices.Concat(floorRows, peerRows, ourRows, datadogRows)

func findRow(name string) (row, error) {
	for _, r := range rows {
		if r.name == name {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("no row %q", name)
}

var floorRows = []row{
	{name: rowNoop, doc: "OpenTelemetry's API without an SDK", nowhere: true, open: openNoop},
	{name: rowFloor, doc: "the SDK with a processor that does nothing: what everybody with the SDK pays", nowhere: true, open: openFloor},
}

func openNoop(context.Context, rig) (*way, error) {
	provider := noop.NewTracerProvider()
	return &way{
		produce: func() func(int) { return produceWith(provider) },
		flush:   func(context.Context) error { return nil },
		close:   func(context.Context) error { return nil },
	}, nil
}

// nothing is a processor that does nothing.
type nothing struct{}

func (nothing) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nothing) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (nothing) ForceFlush(context.Context) error                { return nil }
func (nothing) Shutdown(context.Context) error                  { return nil }

func openFloor(context.Context, rig) (*way, error) { return sdkWay(nothing{}), nil }

// mostAttributes is more than any span here has.
const mostAttributes = 256

func newProvider(processor sdktrace.SpanProcessor) *sdktrace.TracerProvider {
	limits := sdktrace.NewSpanLimits()
	limits.AttributeCountLimit = mostAttributes
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

// produceWith makes the span that everything here is measured with: what a
// request leaves, a root server span with four texts and two integers, some 320
// bytes as OTLP.
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
