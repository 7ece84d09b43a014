package pipeline

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// BenchmarkAddParallel has as many goroutines end spans as there are processors. The
// lists are emptied by the goroutine that finds them long.
func BenchmarkAddParallel(b *testing.B) {
	p, _ := newTestPipeline(Settings{})
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("bench")
	for range 1024 {
		_, span := tracer.Start(b.Context(), "GET /users/{id}")
		span.End()
	}
	spans := recorder.Ended()
	var draining sync.Mutex
	var spare []sdktrace.ReadOnlySpan
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(spans)); pb.Next(); i++ {
			s := spans[i%len(spans)]
			g, _ := sdkspan.GistOf(s)
			p.Add(s, g)
			if len(p.intake.wake) > 0 && draining.TryLock() {
				<-p.intake.wake
				for i := range p.intake.shards {
					taken, bytes := p.intake.shards[i].take(spare)
					spare = taken[:0]
					p.mem.charge(-bytes)
				}
				draining.Unlock()
			}
		}
	})
}

// BenchmarkConsume measures the cost of a request of 512 spans, until the exporter is done
// with them: without a spool, and with one.
func BenchmarkConsume(b *testing.B) {
	const spans = 512
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("bench")
	var encoder sdkspan.Encoder
	for range spans {
		_, span := tracer.Start(b.Context(), "GET /users/{id}", trace.WithAttributes(attribute.String("filler", strings.Repeat("x", 200))))
		span.End()
	}
	for _, s := range recorder.Ended() {
		encoder.Append(s)
	}
	request := encoder.AppendRequest(nil)
	for name, cfg := range map[string]Settings{"memory": {}, "spool": {SpoolDir: b.TempDir(), SpoolBytes: 1 << 30}} {
		b.Run(name, func(b *testing.B) {
			p, q := newTestPipeline(cfg)
			defer p.Spool.Close()
			b.SetBytes(int64(len(request)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Consume(request, "sender"); err != nil {
					b.Fatal(err)
				}
				q.DropRest()
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/spans, "ns/span")
		})
	}
}
