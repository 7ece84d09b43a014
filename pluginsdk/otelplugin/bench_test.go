package otelplugin_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

// benchSpans are 512 spans of ten attributes and an event.
func benchSpans() []byte {
	all := stubs(512)
	for i := range all {
		for _, key := range []string{"request_id", "deployment", "app", "call_method", "route", "model_id", "type", "method", "path", "replica"} {
			all[i].Attributes = append(all[i].Attributes, attribute.String("serve."+key, "some value of it"))
		}
		all[i].Events = []sdktrace.Event{{Name: "event", Time: all[i].StartTime, Attributes: all[i].Attributes[:2]}}
	}
	return batchOf(all.Snapshots()...).Bytes()
}

func BenchmarkExporter(b *testing.B) {
	e, err := otelplugin.Exporter(func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error) { return discard{}, nil })(b.Context(), pluginsdk.Setup{})
	if err != nil {
		b.Fatal(err)
	}
	encoded := benchSpans()
	perSpan(b, func() error { return e.Export(b.Context(), pluginsdk.NewBatch(encoded)) })
}

// BenchmarkDecode measures OTLP's own messages, for comparison.
func BenchmarkDecode(b *testing.B) {
	encoded := benchSpans()
	perSpan(b, func() error {
		_, err := pluginsdk.NewBatch(encoded).Decode()
		return err
	})
}

func BenchmarkProcessors(b *testing.B) {
	p, err := otelplugin.Processors(list(rayServe{"01000000"}))(b.Context(), pluginsdk.Setup{})
	if err != nil {
		b.Fatal(err)
	}
	encoded := benchSpans()
	perSpan(b, func() error {
		batch := pluginsdk.NewBatch(encoded)
		if err := p.Process(b.Context(), batch); err != nil {
			return err
		}
		_ = batch.Bytes()
		return nil
	})
}

func perSpan(b *testing.B, batch func() error) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if err := batch(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/span")
}

type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }
