// Package otlpexporter sends spans by OTLP, over HTTP or gRPC. It is the exporter
// of the otlp plugin, and can be that of a plugin with processors of its own, or
// with a vendor's endpoint as the default:
//
//	pluginsdk.Main(pluginsdk.Spec{
//		Name:       "acme",
//		Env:        append(otlpexporter.EnvPatterns(), "ACME_TOKEN"),
//		Processors: []pluginsdk.NewProcessor{redact},
//		Exporter: func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
//			return otlpexporter.NewWith(ctx, s, otlpexporter.Defaults{
//				Endpoint: "https://otlp.acme.example",
//				Headers:  map[string]string{"acme-token": s.Getenv("ACME_TOKEN")},
//			})
//		},
//	})
//
// The life of an exporter:
//
//  1. [New] reads the settings and the files they name, and logs one line that
//     says where spans go. It connects to nothing.
//  2. Export hands the batch, undecoded, to OpenTelemetry's own client:
//     otlptracehttp or otlptracegrpc. One batch is one call.
//  3. The client sends through a transport of this package (an
//     http.RoundTripper, a gRPC interceptor). It reads the status, Retry-After,
//     RetryInfo and partial success of the answer. Export turns them into the
//     answer to the host, in words that say what to do.
//  4. Shutdown stops the client and closes the connections.
//
// The exporter has no queue and retries nothing: the host retries, and knows for
// how long. It does not follow a redirect to another machine, because headers
// hold credentials.
//
// Open this file first. settings.go lists the settings; endpoint.go, headers.go
// and tls.go read parts of them. http.go and grpc.go make the two clients.
// answer.go reads answers; fault.go explains errors without an answer.
package otlpexporter

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

var _ pluginsdk.NewExporter = New

// Defaults are what a plugin of one's own sets where the operator sets nothing.
// The zero Defaults are those of OpenTelemetry's specification.
type Defaults struct {
	// Protocol is "http/protobuf", "http/json" or "grpc". Empty: http/protobuf.
	Protocol string
	// Endpoint is as in OTEL_EXPORTER_OTLP_ENDPOINT: a URL, to which HTTP appends
	// /v1/traces. Empty: http://localhost:4318, or :4317 for gRPC.
	Endpoint string
	// Headers go with each call, under those of the operator, who wins by name,
	// whatever the case. Values are shown nowhere. Nil: none.
	Headers map[string]string
}

// New is [NewWith] with the defaults of OpenTelemetry's specification.
func New(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	return NewWith(ctx, s, Defaults{})
}

// NewWith builds the exporter from the variables that [EnvPatterns] names, or
// where they are not set from the part "exporter" of the plugin's document,
// whose other parts are not its business, or else from d:
//
//	exporter:
//	  protocol: grpc                    # as OTEL_EXPORTER_OTLP_PROTOCOL
//	  endpoint: https://collector:4317  # as OTEL_EXPORTER_OTLP_ENDPOINT
//	  headers: {x-api-key: "${env:KEY}"}
//	  compression: gzip
//	  timeout: 5s
//	  certificate: /etc/ca.pem          # and client_certificate, client_key
//	  insecure: false
//
// Wrong values, and files that can not be used, give [pluginsdk.ConfigError]s,
// all at once, each with the variable or the path in the document. NewWith does
// not wait for the network. The exporter is safe for concurrent use. An error of
// its Export is final if OTLP says so, and never shows a header's value.
//
// NewWith switches off the internal log of OpenTelemetry's API in this process
// (otel.SetLogger).
func NewWith(ctx context.Context, s pluginsdk.Setup, d Defaults) (pluginsdk.Exporter, error) {
	chosen, err := readSettings(s, d)
	if err != nil {
		return nil, err
	}
	// The clients read the environment as well. They log what they cannot parse,
	// with its value, which may be a secret. It has been checked by now.
	otel.SetLogger(logr.Discard())
	connect := newHTTP
	if chosen.protocol == protocolGRPC {
		connect = newGRPC
	}
	to, err := connect(chosen)
	if err != nil {
		return nil, err
	}
	if err := to.client.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start client: %w", err), to.close())
	}
	chosen.announce(s.Log)
	return &exporter{settings: chosen, connection: to}, nil
}

// connection is a client, and the function that closes its connections.
type connection struct {
	client otlptrace.Client
	close  func() error
}

type exporter struct {
	settings
	connection
}

var _ pluginsdk.Exporter = (*exporter)(nil)

// Export makes one call to the back end.
func (e *exporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans, err := e.messages(b)
	if err != nil || len(spans) == 0 {
		return err
	}
	within, limit := e.patience(ctx)
	own, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := &call{}
	err = e.client.UploadTraces(context.WithValue(own, callKey{}, c), spans)
	switch {
	case c.answered:
		return c.answer
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case own.Err() != nil || c.late:
		return e.slow(c, within, limit)
	case c.fault != nil:
		return e.explain(c.fault, c.at)
	default: // the client ended the call before it reached the transport
		return e.explain(err, nil)
	}
}

// messages returns the batch as the client takes it. JSON is written from
// decoded messages: of undecoded ones it would write nothing.
func (e *exporter) messages(b *pluginsdk.Batch) ([]*tracepb.ResourceSpans, error) {
	if e.protocol == protocolJSON {
		return b.Decode()
	}
	return b.Undecoded()
}

// Shutdown stops the client and closes the connections.
func (e *exporter) Shutdown(ctx context.Context) error {
	return errors.Join(e.client.Stop(ctx), e.close())
}

// patience returns how long a call may take, and the variable that says so. It
// ends a little before the host gives the call up, so that the host hears why.
func (e *exporter) patience(ctx context.Context) (within time.Duration, limit string) {
	const most = 250 * time.Millisecond
	deadline, ok := ctx.Deadline()
	if !ok {
		return e.timeout, e.timeoutFrom
	}
	left := time.Until(deadline)
	left -= min(most, left/10)
	if e.timeout < left {
		return e.timeout, e.timeoutFrom
	}
	return left, envExportTimeout
}

// call is what the transport tells Export about a call. The client passes on
// only a part of that. The transport writes it, Export reads it after the call.
type call struct {
	answered bool     // the back end answered
	answer   error    // the answer to the host; nil for delivered
	fault    error    // the reason for which there is no answer
	late     bool     // the time was over
	at       *url.URL // the URL of the last request; nil for gRPC
	// connected: there was a connection to send the batch on.
	connected atomic.Bool
}

// answers notes the answer to the host.
func (c *call) answers(answer error) { c.answered, c.answer = true, answer }

type callKey struct{}

// callOf returns the call that ctx belongs to.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{} // never: only Export uses the client
}
