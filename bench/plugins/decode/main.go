// Command decode is a plugin that decodes every span into one of the SDK's, as
// exporters and processors brought from OpenTelemetry need it, encodes it again
// by this project's encoder and posts it: what a full decode costs by itself.
package main

import (
	"context"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/bench/internal/post"
	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

const envEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

func main() {
	pluginsdk.Main(pluginsdk.Spec{Name: "decode", Env: []string{envEndpoint}, Exporter: otelplugin.Exporter(newExporter)})
}

func newExporter(_ context.Context, s pluginsdk.Setup) (sdktrace.SpanExporter, error) {
	return &exporter{poster: post.New(s.Getenv(envEndpoint) + "/v1/traces")}, nil
}

type exporter struct {
	poster *post.Poster

	mu   sync.Mutex
	enc  sdkspan.Encoder
	body []byte
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.mu.Lock()
	defer e.mu.Unlock() // calls never overlap anyway, says otelplugin
	e.enc.Reset()
	for _, s := range spans {
		e.enc.Append(s)
	}
	e.body = e.enc.AppendRequest(e.body[:0])
	return e.poster.Post(ctx, e.body)
}

func (*exporter) Shutdown(context.Context) error { return nil }
