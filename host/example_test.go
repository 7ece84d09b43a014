package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
)

// A missing plugin does no harm: the span waits, and the accounting has it at the end.
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
	// plugin "traces": 1 spans not delivered (state draining): the plugin is not run as it is
	// traces stopped map[shutdown:1]
}

// The error names the variable, the value seen and the allowed values.
func ExampleConfigFromEnv() {
	env := map[string]string{"SERVE_TRACING_BATCH_AGE": "200"}
	_, err := host.ConfigFromEnv(func(name string) string { return env[name] })
	fmt.Println(err)
	// Output: SERVE_TRACING_BATCH_AGE="200": want a duration above zero, such as 200ms or 10s
}

// The result of the settings, without a Host and without a process.
func ExampleInspect() {
	cfg := host.Config{
		Plugins:        "console=/nowhere/console,debugged=unix:///nowhere/plugin.sock",
		Environ:        []string{"LANG=C", "SECRET=x"},
		PluginMaxProcs: map[string]int{"console": 2},
	}
	for _, i := range host.Inspect(context.Background(), cfg, false) {
		fmt.Println(i.Name, i.Attached, i.Variables)
		fmt.Println("  ", i.Err)
	}
	// Output:
	// console false [{GOMAXPROCS 2 false SERVE_TRACING_PLUGIN_GOMAXPROCS false} {LANG C true  false}]
	//    start /nowhere/console: there is no such file; check the path, or build the plugin
	// debugged true []
	//    attach to /nowhere/plugin.sock: there is no such socket; start the plugin there (--listen), or check the path
}
