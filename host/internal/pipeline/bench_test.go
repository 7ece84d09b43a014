package pipeline

import (
	"math/rand/v2"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

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
