// Command otlp-client-plugin is an exporter plugin like one of a third party: a Go module
// of its own, on pluginsdk and OpenTelemetry's otlptracehttp alone. It proves that a third
// party has the same access to a batch as plugins/otlp, at the same cost.
//
// Its life:
//
//  1. pluginsdk.Main calls newExporter with the variables that the host grants.
//     otlptracehttp reads them.
//  2. Export hands the batch to the client undecoded ([pluginsdk.Batch.Undecoded]).
//     The client encodes the same bytes and sends them.
//  3. transport turns the answer into an answer for the host: rejected, to be sent again,
//     or accepted in part.
//
// It keeps no spans and retries nothing: the host does.
//
//	SERVE_TRACING_EXPORTER_PLUGIN=./otlp-client-plugin OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 my-service
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/servetrace/servetrace/pluginsdk"
)

var spec = pluginsdk.Spec{
	Name:        "otlp-client",
	Description: "sends spans by OTLP over HTTP, through OpenTelemetry's client",
	Env:         []string{"OTEL_EXPORTER_OTLP_*"},
	Exporter:    newExporter,
}

func main() { pluginsdk.Main(spec) }

// exporter is a client of OTLP. Safe for concurrent use, as the client is.
type exporter struct {
	client    otlptrace.Client
	transport *http.Transport
}

// newExporter makes the client of the variables.
func newExporter(ctx context.Context, _ pluginsdk.Setup) (pluginsdk.Exporter, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 8   // more than a host sends at a time
	base.WriteBufferSize = 1 << 20 // a batch is written at once
	client := otlptracehttp.NewClient(
		otlptracehttp.WithHTTPClient(&http.Client{Transport: transport{base}}),
		otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),         // JSON is written from decoded batches
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}), // the host retries
	)
	if err := client.Start(ctx); err != nil {
		return nil, fmt.Errorf("start client: %w", err)
	}
	return &exporter{client, base}, nil
}

// Export sends one batch. It blocks until the back end has answered, or ctx ends.
func (e *exporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans, err := b.Undecoded()
	if err != nil || len(spans) == 0 {
		return err
	}
	return e.client.UploadTraces(ctx, spans)
}

// Shutdown ends the client and closes its connections.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer e.transport.CloseIdleConnections()
	return e.client.Stop(ctx)
}

// transport is an http.RoundTripper whose errors are the answers for the host. The client
// wraps them, and pluginsdk finds them in the chain.
type transport struct{ base http.RoundTripper }

// RoundTrip makes one request.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	const most = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(resp.Body, most)) // the status has been said
	if err := answer(resp, body); err != nil {
		return nil, err
	}
	resp.Body = http.NoBody // it has been read
	return resp, nil
}

// answer returns nil for a batch that was delivered.
// https://opentelemetry.io/docs/specs/otlp/#otlphttp-response
func answer(resp *http.Response, body []byte) error {
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		taken := &coltracepb.ExportTraceServiceResponse{}
		if part := taken.GetPartialSuccess; proto.Unmarshal(body, taken) == nil && part() != nil {
			return pluginsdk.Partial(int(part().GetRejectedSpans()), part().GetErrorMessage())
		}
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		after, _ := pluginsdk.ReadRetryAfter(resp.Header)
		return pluginsdk.RetryAfter(fmt.Errorf("the back end answered %s", resp.Status), after)
	default:
		return pluginsdk.Permanent(fmt.Errorf("the back end answered %s: %.200q", resp.Status, body))
	}
}
