package host_test

import (
	"bytes"
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// TestRecent: the host keeps the batches as they left the processors, and none in no
// bytes.
func TestRecent(t *testing.T) {
	for _, most := range []int{1 << 20, 0} {
		recent := host.NewRecent(most)
		h, err := host.New(host.Config{Plugins: testplugin.Install(t, "record")}, host.WithRecent(recent))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(h)).Tracer("test")
		_, span := tracer.Start(context.Background(), "a span of now")
		span.End()
		if err := h.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		got := recent.Batches()
		if kept := len(got) == 1 && bytes.Contains(got[0], []byte("a span of now")); kept != (most > 0) {
			t.Errorf("with %d bytes, %d batches are kept: %q", most, len(got), got)
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
