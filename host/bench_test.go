package host

import (
	"context"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// endedSpans are n finished spans of the usual shape: six attributes.
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

// fedHost is a Host that takes spans in and sends them nowhere: its worker is
// called by hand.
func fedHost(tb testing.TB) *Host {
	tb.Helper()
	h, err := New(Config{Plugins: "/no/plugin", QueueBytes: 1 << 30}, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// drainAway empties the lists and forgets the batches.
func drainAway(h *Host) {
	h.pipeline.Flush()
	for _, x := range h.plugins {
		x.Queue.DropRest()
	}
}

func TestOnEndDoesNotAllocate(t *testing.T) {
	h, spans := fedHost(t), endedSpans(t, 1000)
	feed := func() {
		for _, s := range spans {
			h.OnEnd(s)
		}
	}
	for range 4 { // the lists of all shards grow to their usual length
		feed()
		drainAway(h)
	}
	// Draining allocates a few objects per batch; OnEnd must add none.
	if got := testing.AllocsPerRun(10, func() { feed(); drainAway(h) }); got > 50 {
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
			drainAway(h)
			b.StartTimer()
		}
	}
}

// BenchmarkDrain measures the cost of 1,000 spans for the worker.
func BenchmarkDrain(b *testing.B) {
	h, spans := fedHost(b), endedSpans(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for _, s := range spans {
			h.OnEnd(s)
		}
		b.StartTimer()
		drainAway(h)
	}
}
