package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
)

// A plugin that is not there hurts nothing: the span waits, and at the end it
// is in the books.
func ExampleNew() {
	plugins, err := host.New(host.Config{Plugins: "traces=/nowhere/plugin", StopTimeout: 100 * time.Millisecond},
		host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if err := plugins.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(plugins))
	_, span := provider.Tracer("example").Start(ctx, "work")
	span.End()
	fmt.Println(provider.Shutdown(ctx))
	for _, x := range plugins.Stats().Exporters {
		fmt.Println(x.Name, x.State, x.Dropped)
	}
	// Output:
	// plugin "traces": 1 spans not delivered (state draining): context deadline exceeded
	// traces stopped map[shutdown:1]
}

// A wrong setting is named with its variable, the value seen and what is
// allowed.
func ExampleConfigFromEnv() {
	env := map[string]string{"SERVE_TRACING_BATCH_AGE": "200"}
	_, err := host.ConfigFromEnv(func(name string) string { return env[name] })
	fmt.Println(err)
	// Output: SERVE_TRACING_BATCH_AGE="200": must be a duration above zero, such as 200ms or 10s
}
