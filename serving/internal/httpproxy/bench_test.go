package httpproxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/tracing"
)

// nullWriter is a connection that takes everything.
type nullWriter struct{ h http.Header }

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nullWriter) WriteHeader(int)             {}

// SetWriteDeadline is what http.ResponseController calls.
func (w *nullWriter) SetWriteDeadline(time.Time) error { return nil }

// discardSpans is a processor that keeps nothing.
type discardSpans struct{}

func (discardSpans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discardSpans) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discardSpans) ForceFlush(context.Context) error                { return nil }
func (discardSpans) Shutdown(context.Context) error                  { return nil }

// BenchmarkServe measures one request from proxy to handler and back, without
// sockets. "off" is the runtime alone.
func BenchmarkServe(b *testing.B) {
	cfg, err := tracing.ConfigFromEnv(func(string) string { return "" })
	if err != nil {
		b.Fatal(err)
	}
	on, err := tracing.NewProvider(cfg, discardSpans{})
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name, traceparent string
		provider          *tracing.Provider
	}{
		{"off", "", tracing.Off()},
		{"unsampled", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", on},
		{"sampled", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", on},
	} {
		b.Run(bb.name, func(b *testing.B) {
			hello := []byte("hello")
			s := startTraced(b, spans.New(bb.provider), 0, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(hello) }))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Request-ID", "id-1")
			if bb.traceparent != "" {
				r.Header.Set("traceparent", bb.traceparent)
			}
			w := &nullWriter{h: make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				s.front.http.Handler.ServeHTTP(w, r)
			}
		})
	}
}
