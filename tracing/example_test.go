package tracing_test

import (
	"context"
	"fmt"
	"net/http"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/servetrace/servetrace/tracing"
)

func ExampleConfigFromEnv() {
	env := map[string]string{"SERVE_TRACING_SAMPLING_RATIO": "0.1", "OTEL_TRACES_SAMPLER": "always_on"}
	cfg, err := tracing.ConfigFromEnv(func(key string) string { return env[key] })
	fmt.Println(cfg.Sampler, cfg.Ratio, err)
	fmt.Println(cfg.Warnings)
	// Output:
	// parentbased_traceidratio 0.1 <nil>
	// [OTEL_TRACES_SAMPLER is ignored, for SERVE_TRACING_SAMPLING_RATIO is set]
}

// One request through a proxy and a replica, with the handler's own span.
func ExampleNewProvider() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter()
	p, err := tracing.NewProvider(tracing.DefaultConfig(), sdktrace.NewSimpleSpanProcessor(exporter))
	if err != nil {
		fmt.Println(err)
		return
	}
	replica := p.NewReplica("default", "HelloWorld")

	atProxy := &tracing.Request{ID: "r1", App: "default", Deployment: "HelloWorld", Route: "/", Component: p.NewProxy()}
	ctx, proxy := p.StartProxy(p.Extract(ctx, http.Header{}), tracing.ProxyStart{Request: atProxy, Method: "GET", RoutePath: "/"})
	ctx, router := p.StartRouter(ctx, tracing.RouterStart{App: "default", Deployment: "HelloWorld"})
	atReplica := &tracing.Request{ID: "r1", App: "default", Deployment: "HelloWorld", Route: "/", Component: replica}
	inReplica, handling := p.StartReplica(ctx, tracing.ReplicaStart{Request: atReplica, Method: "GET"})
	router.End(tracing.RouterResult{})

	_, user := p.TracerProvider().Tracer("app").Start(inReplica, "application_span")
	user.End()

	handling.End(tracing.ReplicaResult{StatusCode: 200})
	proxy.End(tracing.ProxyResult{StatusCode: 200})

	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Status.Code, s.Name)
	}
	if err := p.Shutdown(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Unset route_to_replica HelloWorld __call__
	// Unset application_span
	// Unset replica_handle_request HelloWorld __call__
	// Ok proxy_http_request HelloWorld GET /
}

// Without a plugin nothing is recorded, and context goes through unchanged.
func ExampleOff() {
	p := tracing.Off()
	in := http.Header{}
	in.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	ctx, span := p.StartProxy(p.Extract(context.Background(), in), tracing.ProxyStart{Request: &tracing.Request{ID: "r1"}})
	defer span.End(tracing.ProxyResult{StatusCode: 200})

	out := http.Header{}
	p.Inject(ctx, out)
	fmt.Println(p.Enabled(), out.Get("traceparent"))
	// Output: false 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
}

// Work that outlives the request, in the request's trace.
func ExampleTraceContext() {
	handler := func(ctx context.Context) context.Context {
		return tracing.TraceContext(ctx)
	}
	ctx, cancel := context.WithCancel(context.Background())
	late := handler(tracing.ContextWithRequest(ctx, &tracing.Request{ID: "r1"}))
	cancel()
	fmt.Println(late.Err(), tracing.RequestFromContext(late).ID)
	// Output: <nil> r1
}
