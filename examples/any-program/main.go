// Command any-program is an ordinary program without a server: it counts words, traces
// its functions with OpenTelemetry, and exports the spans through plugins. It proves
// that package host does not need the serving runtime.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=./bin/plugins/console ./bin/any-program
//
// setUpTracing is the only code for tracing (Ray calls its counterpart the start-up
// hook). At the end, the provider's Shutdown sends the remaining spans and stops the
// plugins. If the variable is unset, the program does the same work without tracing.
//
// The program has no flags and ends soon. A long-running program can show its plugins
// to operators with a further line, on a separate port:
//
//	go http.ListenAndServe("127.0.0.1:8001", admin.Handler(plugins.Stats))
//
// Read this file from setUpTracing on.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/host"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "any-program:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	provider, err := setUpTracing()
	if err != nil {
		return err
	}
	// The host bounds the time (SERVE_TRACING_STOP_TIMEOUT). Lost spans are logged and do
	// not fail the program.
	defer func() {
		if err := provider.Shutdown(ctx); err != nil {
			slog.Error("shut down tracing", "error", err)
		}
	}()
	return report(ctx, w)
}

// setUpTracing makes the host the processor of all spans. It returns at once: plugins
// start in the background, and spans wait for them.
func setUpTracing() (*sdktrace.TracerProvider, error) {
	plugins, err := host.FromEnv()
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(plugins))
	otel.SetTracerProvider(provider)
	return provider, nil
}

// The rest is an ordinary program with OpenTelemetry.

var tracer = otel.Tracer("github.com/servetrace/servetrace/examples/any-program")

const text = `the replica that takes the request and the proxy that took it
before are two parts of the trace and the span is the third`

// report prints how often the most frequent word occurs.
func report(ctx context.Context, w io.Writer) error {
	ctx, span := tracer.Start(ctx, "report")
	defer span.End()
	word, n := most(ctx, count(ctx, text))
	_, err := fmt.Fprintf(w, "%q occurs %d times\n", word, n)
	return err
}

func count(ctx context.Context, text string) map[string]int {
	_, span := tracer.Start(ctx, "count")
	defer span.End()
	counts := map[string]int{}
	for word := range strings.FieldsSeq(text) {
		counts[word]++
	}
	span.SetAttributes(attribute.Int("words.distinct", len(counts)))
	return counts
}

func most(ctx context.Context, counts map[string]int) (word string, n int) {
	_, span := tracer.Start(ctx, "most")
	defer span.End()
	for w, c := range counts {
		if c > n {
			word, n = w, c
		}
	}
	return word, n
}
