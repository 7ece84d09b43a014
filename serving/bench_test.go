package serving_test

import (
	"bufio"
	"context"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// BenchmarkHTTP measures a request over a kept connection: to a bare net/http server
// that tells a request id, and to ours without tracing.
func BenchmarkHTTP(b *testing.B) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	b.Run("bare", func(b *testing.B) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-ID", uuid.NewString())
			hello.ServeHTTP(w, r)
		}))
		defer s.Close()
		benchmarkRequests(b, s.Listener.Addr())
	})
	b.Run("off", func(b *testing.B) {
		s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{serving.NewApp("a", serving.NewDeployment("D", hello))},
			serving.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = s.Shutdown(context.Background()) }()
		benchmarkRequests(b, s.Addr())
	})
}

// benchmarkRequests sends requests one after the other.
func benchmarkRequests(b *testing.B, to net.Addr) {
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	request, in := []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), bufio.NewReader(c)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				b.Fatal(err)
			}
			if len(line) == len("\r\n") {
				break
			}
		}
		if _, err := in.Discard(len("hello")); err != nil {
			b.Fatal(err)
		}
	}
}

// discardSpans is a processor that keeps nothing.
type discardSpans struct{ *spanLog }

func (discardSpans) OnEnd(sdktrace.ReadOnlySpan) {}

// BenchmarkHandleCall measures a call by handle from inside a call, which is
// what composition costs; "stream" is one with ten values.
func BenchmarkHandleCall(b *testing.B) {
	for _, bb := range []struct {
		name        string
		on, sampled bool
	}{{"off", false, false}, {"unsampled", true, false}, {"sampled", true, true}} {
		b.Run(bb.name, func(b *testing.B) {
			tp := tracing.Off()
			if bb.on {
				tp = provider(b, discardSpans{newSpanLog()})
			}
			d := functions("D", serving.WithReplicas(2))
			add := serving.AddFunction(d, "add", func(_ context.Context, n int) (int, error) { return n + 1, nil })
			ten := serving.AddStream(d, "ten", func(_ context.Context, n int) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) {
					for range 10 {
						if !yield(n, nil) {
							return
						}
					}
				}
			})
			outer := functions("Outer")
			within := serving.AddFunction(outer, "", func(ctx context.Context, f func(context.Context)) (struct{}, error) {
				f(ctx)
				return struct{}{}, nil
			})
			s, err := serving.New(serving.Config{HTTPAddr: "127.0.0.1:0"}, []*serving.App{
				serving.NewApp("a", serving.NewDeployment("A", http.NotFoundHandler()), serving.WithDeployments(d, outer)),
			}, serving.WithTracing(tp), serving.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Shutdown(context.Background()) }()
			flags := trace.TraceFlags(0).WithSampled(bb.sampled)
			ctx := trace.ContextWithRemoteSpanContext(b.Context(), trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags,
			}))
			measure := func(name string, call func(context.Context)) {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					_, err := within.Call(ctx, func(ctx context.Context) {
						for b.Loop() {
							call(ctx)
						}
					})
					if err != nil {
						b.Fatal(err)
					}
				})
			}
			measure("function", func(ctx context.Context) {
				if n, err := add.Call(ctx, 1); n != 2 || err != nil {
					b.Fatal(n, err)
				}
			})
			measure("stream", func(ctx context.Context) {
				for _, err := range ten.Stream(ctx, 1) {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
