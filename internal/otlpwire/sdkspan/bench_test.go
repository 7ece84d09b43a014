package sdkspan

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

const batch = 512

// serverSpans returns the spans of requests: server spans with 4 texts and 2 integers, some
// 320 bytes as OTLP, made by the SDK.
func serverSpans(tb testing.TB, n int) []sdktrace.ReadOnlySpan {
	tb.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(recorder),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "bench"))))
	tracer := provider.Tracer("github.com/servetrace/servetrace/serving")
	for i := range n {
		_, span := tracer.Start(context.Background(), "proxy_http_request GET /api/{id}", trace.WithSpanKind(trace.SpanKindServer))
		span.SetAttributes(
			attribute.String("http.request.method", "GET"),
			attribute.String("http.route", "/api/{id}"),
			attribute.String("serve.request_id", "1c7e9d3b-0c6a-54e2-f97a-6f1d0a52c7b8"),
			attribute.String("serve.deployment", "HelloWorld"),
			attribute.Int("http.response.status_code", 200),
			attribute.Int("serve.queue_wait_ms", i))
		span.End()
	}
	return recorder.Ended()
}

// kindSpans have one attribute each, of one kind.
func kindSpans(kv attribute.KeyValue) []sdktrace.ReadOnlySpan {
	spans := make([]sdktrace.ReadOnlySpan, batch)
	for i := range spans {
		spans[i] = tracetest.SpanStub{Name: "s", Attributes: []attribute.KeyValue{kv}}.Snapshot()
	}
	return spans
}

// BenchmarkToBytes compares this package with the SDK's transform and Marshal.
func BenchmarkToBytes(b *testing.B) {
	spans := serverSpans(b, batch)
	b.Run("encoder", func(b *testing.B) { benchEncoder(b, spans) })
	b.Run("transform+marshal", func(b *testing.B) { benchSDK(b, spans) })
}

// BenchmarkKinds shows that no kind of attribute allocates.
func BenchmarkKinds(b *testing.B) {
	texts := []string{"a", "b", "c", "d", "e"}
	for _, kv := range []attribute.KeyValue{
		attribute.String("k", "text"),
		attribute.String("k", "bad \xff text"),
		attribute.StringSlice("k", texts[:2]),
		attribute.StringSlice("k", texts),
		attribute.Int64Slice("k", []int64{1, 2, 3, 4, 5}),
		{Key: "k", Value: attribute.ByteSliceValue([]byte("bytes"))},
		{Key: "k", Value: attribute.SliceValue(attribute.IntValue(1), attribute.StringSliceValue(texts))},
		{Key: "k", Value: attribute.MapValue(attribute.Int("a", 1), attribute.StringSlice("b", texts))},
	} {
		b.Run(fmt.Sprintf("%v/%d", kv.Value.Type(), len(kv.Value.String())), func(b *testing.B) {
			benchEncoder(b, kindSpans(kv))
		})
	}
}

func benchEncoder(b *testing.B, spans []sdktrace.ReadOnlySpan) {
	var e Encoder
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		e.Reset()
		for _, s := range spans {
			e.Append(s)
		}
		dst = e.AppendRequest(dst[:0])
	}
	perSpan(b, len(spans), len(dst))
}

func benchSDK(b *testing.B, spans []sdktrace.ReadOnlySpan) {
	client := &captureClient{}
	exporter, err := otlptrace.New(b.Context(), client)
	if err != nil {
		b.Fatal(err)
	}
	var body []byte
	b.ReportAllocs()
	for b.Loop() {
		if err := exporter.ExportSpans(b.Context(), spans); err != nil {
			b.Fatal(err)
		}
		body, err = proto.Marshal(&coltracepb.ExportTraceServiceRequest{ResourceSpans: client.got})
		if err != nil {
			b.Fatal(err)
		}
	}
	perSpan(b, len(spans), len(body))
}

func perSpan(b *testing.B, spans, size int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*spans), "ns/span")
	b.ReportMetric(float64(size)/float64(spans), "bytes/span")
}

func BenchmarkGist(b *testing.B) {
	s := serverSpans(b, 1)[0]
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		g, _ := GistOf(s)
		n += g.Heap
	}
	if n == 0 {
		b.Error("nothing was estimated")
	}
}
