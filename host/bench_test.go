package host_test

import (
	"context"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/host"
)

// endedSpans returns n ended spans with six attributes.
func endedSpans(tb testing.TB, n int) []sdktrace.ReadOnlySpan {
	tb.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("bench")
	for range n {
		_, span := tracer.Start(context.Background(), "GET /users/{id}")
		span.SetAttributes(
			attribute.String("http.request.method", "GET"), attribute.String("url.path", "/users/4711"),
			attribute.String("http.route", "/users/{id}"), attribute.String("server.address", "shop.example"),
			attribute.Int("http.response.status_code", 200), attribute.Int("server.port", 8080))
		span.End()
	}
	return recorder.Ended()
}

// fedHost returns a Host that accepts spans and is not started: it sends them nowhere. Its
// full queue loses its oldest batches.
func fedHost(tb testing.TB) *host.Host {
	tb.Helper()
	h, err := host.New(host.Config{Plugins: "/no/plugin"}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestOnEndDoesNotAllocate(t *testing.T) {
	h, spans := fedHost(t), endedSpans(t, 1000)
	feed := func() {
		for _, s := range spans {
			h.OnEnd(s)
		}
	}
	for range 4 { // the lists of the spans grow to their usual length
		feed()
		h.Seal()
	}
	// Seal allocates a few objects per batch. OnEnd must add none.
	if got := testing.AllocsPerRun(10, func() { feed(); h.Seal() }); got > 50 {
		t.Errorf("%v allocations for 1000 spans and their batch, want at most 50", got)
	}
	if err := h.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// BenchmarkOnEnd measures the cost of the end of a span for a request.
func BenchmarkOnEnd(b *testing.B) {
	h, spans := fedHost(b), endedSpans(b, 1024)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.OnEnd(spans[i%len(spans)])
		if i%len(spans) == len(spans)-1 {
			b.StopTimer()
			h.Seal()
			b.StartTimer()
		}
	}
}

// BenchmarkSeal measures the cost of a batch of 1,000 spans.
func BenchmarkSeal(b *testing.B) {
	h, spans := fedHost(b), endedSpans(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for _, s := range spans {
			h.OnEnd(s)
		}
		b.StartTimer()
		h.Seal()
	}
}
