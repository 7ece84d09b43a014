// Command benchplugin is the plugin of several rows. The variable BENCH_PLUGIN chooses
// its exporter.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

const envEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

var exporters = map[string]pluginsdk.NewExporter{
	// discard does nothing, like the batch processor with a no-op exporter.
	"discard": exportFunc(func(context.Context) error { return nil }),
	// hung never answers. A call ends when the host cancels it.
	"hung": exportFunc(func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}),
	// crashing crashes at its first spans after each start.
	"crashing": exportFunc(func(context.Context) error {
		os.Exit(3)
		return nil
	}),
	// sdk is OpenTelemetry's own OTLP/HTTP exporter, unchanged.
	"sdk": otelplugin.Exporter(func(ctx context.Context, _ pluginsdk.Setup) (sdktrace.SpanExporter, error) {
		return otlptracehttp.New(ctx) // reads the variables
	}),
	// decode decodes every span into the SDK's, encodes it again by our encoder and
	// posts it. It shows the cost of a full decode.
	"decode": otelplugin.Exporter(func(_ context.Context, s pluginsdk.Setup) (sdktrace.SpanExporter, error) {
		return &decoder{url: s.Getenv(envEndpoint) + "/v1/traces"}, nil
	}),
}

func exportFunc(f func(ctx context.Context) error) pluginsdk.NewExporter {
	return func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return pluginsdk.ExportFunc(func(ctx context.Context, _ *pluginsdk.Batch) error { return f(ctx) }), nil
	}
}

func main() {
	pluginsdk.Main(pluginsdk.Spec{
		Name: "benchplugin", Env: []string{envEndpoint, "BENCH_PLUGIN"},
		Exporter: func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
			return exporters[s.Getenv("BENCH_PLUGIN")](ctx, s)
		},
	})
}

// decoder posts without retries. otelplugin never calls it concurrently.
type decoder struct {
	url  string
	enc  sdkspan.Encoder
	body []byte
}

func (e *decoder) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.enc.Reset()
	for _, s := range spans {
		e.enc.Append(s)
	}
	e.body = e.enc.AppendRequest(e.body[:0])
	resp, err := http.Post(e.url, "application/x-protobuf", bytes.NewReader(e.body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("post %s: %s", e.url, resp.Status)
	}
	return nil
}

func (*decoder) Shutdown(context.Context) error { return nil }
