// Command decode is a plugin that decodes every span into the SDK's, encodes it again
// by our encoder and posts it. It shows the cost of a full decode.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/otelplugin"
)

const envEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

func main() {
	pluginsdk.Main(pluginsdk.Spec{Name: "decode", Env: []string{envEndpoint}, Exporter: otelplugin.Exporter(newExporter)})
}

func newExporter(_ context.Context, s pluginsdk.Setup) (sdktrace.SpanExporter, error) {
	return &exporter{url: s.Getenv(envEndpoint) + "/v1/traces", client: &http.Client{Transport: &http.Transport{}}}, nil
}

// exporter posts without retries. otelplugin never calls it concurrently.
type exporter struct {
	url    string
	client *http.Client
	enc    sdkspan.Encoder
	body   []byte
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.enc.Reset()
	for _, s := range spans {
		e.enc.Append(s)
	}
	e.body = e.enc.AppendRequest(e.body[:0])
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(e.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := e.client.Do(req)
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

func (*exporter) Shutdown(context.Context) error { return nil }
