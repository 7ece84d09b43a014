package tracing_test

import (
	"context"
	"fmt"
	"net/http"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/tracing"
)

func ExampleConfigFromEnv() {
	env := map[string]string{"SERVE_TRACING_SAMPLING_RATIO": "0.1", "OTEL_TRACES_SAMPLER": "always_on"}
	cfg, err := tracing.ConfigFromEnv(func(key string) string { return env[key] })
	fmt.Println(cfg.Sampler, cfg.Ratio, err)
	fmt.Println(cfg.Warnings)
	// Output:
	// parentbased_traceidratio 0.1 <nil>
	// [OTEL_TRACES_SAMPLER is ignored, because SERVE_TRACING_SAMPLING_RATIO is set]
}

// A provider around a processor. Of a caller that has decided not to sample, no span
// is made.
func ExampleNewProvider() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter()
	p, err := tracing.NewProvider(tracing.DefaultConfig(), sdktrace.NewSimpleSpanProcessor(exporter))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, flags := range []string{"01", "00"} {
		in := http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags}}
		_, span := p.TracerProvider().Tracer("app").Start(p.Extract(ctx, in), "caller says "+flags)
		span.End()
	}
	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Name, s.Parent.SpanID())
	}
	if err := p.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// caller says 01 00f067aa0ba902b7
}

// Without a plugin nothing is recorded, and context goes through unchanged.
func ExampleOff() {
	p := tracing.Off()
	in := http.Header{}
	in.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

	out := http.Header{}
	p.Inject(p.Extract(context.Background(), in), out)
	fmt.Println(p.Enabled(), out.Get("traceparent"))
	// Output: false 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
}

// Work that outlives the request, in the request's trace.
func ExampleTraceContext() {
	handler := func(ctx context.Context) context.Context {
		return tracing.TraceContext(ctx)
	}
	ctx, cancel := context.WithCancel(context.Background())
	late := handler(identity.ContextWithRequest(ctx, &identity.Request{ID: "r1"}))
	cancel()
	fmt.Println(late.Err(), identity.RequestFromContext(late).ID)
	// Output: <nil> r1
}
