package serving

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/tracing"
)

// nullWriter is a connection that takes everything.
type nullWriter struct{ h http.Header }

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nullWriter) WriteHeader(int)             {}

// BenchmarkServe measures one request from proxy to handler and back, without
// sockets. "off" is the runtime alone.
func BenchmarkServe(b *testing.B) {
	for _, bb := range []struct {
		name, traceparent string
		on                bool
	}{
		{"off", "", false},
		{"unsampled", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", true},
		{"sampled", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true},
	} {
		b.Run(bb.name, func(b *testing.B) {
			tp := tracing.Off()
			if bb.on {
				tp = provider(b, discardSpans{newSpanLog()})
			}
			hello := []byte("hello")
			handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(hello) })
			s, err := New(Config{}, []*App{NewApp("a", NewDeployment("D", handler, WithReplicas(2)))},
				WithTracing(tp), WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				b.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Request-ID", "id-1")
			if bb.traceparent != "" {
				r.Header.Set("traceparent", bb.traceparent)
			}
			w := &nullWriter{h: make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				s.http.Handler.ServeHTTP(w, r)
			}
		})
	}
}

// discardSpans is a processor that keeps nothing.
type discardSpans struct{ *spanLog }

func (discardSpans) OnEnd(sdktrace.ReadOnlySpan) {}
