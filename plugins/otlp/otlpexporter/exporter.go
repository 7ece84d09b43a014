// Package otlpexporter sends spans by OTLP, over HTTP or gRPC. It is the exporter of the
// otlp plugin. A plugin with its own processors, or with a vendor's endpoint as the
// default, can use it, too:
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
//  1. [New] reads the settings and the files they name, and logs the destination of
//     spans. It does not connect.
//  2. Export hands the batch, undecoded, to OpenTelemetry's own client:
//     otlptracehttp or otlptracegrpc. One batch is one call.
//  3. The client sends through a transport of this package (an
//     http.RoundTripper, a gRPC interceptor), which reads the status, Retry-After,
//     RetryInfo and partial success of the answer. Export converts them into the answer
//     to the host, with advice for the operator.
//  4. Shutdown stops the client and closes the connections.
//
// The exporter has no queue and retries nothing, because the host does. It does not
// follow a redirect to another machine, because headers hold credentials.
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

// userAgent is the User-Agent of all requests: exporter, version and language, as the
// specification requires:
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/#user-agent
var userAgent = "servetrace-otlp-exporter/" + pluginsdk.Version() + " (Go)"

// Defaults are a plugin's own defaults for settings that the operator does not set. The
// zero Defaults are the defaults of OpenTelemetry's specification.
type Defaults struct {
	// Protocol is "http/protobuf", "http/json" or "grpc". Empty means http/protobuf.
	Protocol string
	// Endpoint has the form of OTEL_EXPORTER_OTLP_ENDPOINT: a URL, to which HTTP
	// appends /v1/traces. Empty means http://localhost:4318, or :4317 for gRPC.
	Endpoint string
	// Headers are sent with each call. The operator's headers override them by name, in
	// any case. Values are never shown. Nil means none.
	Headers map[string]string
}

// New is [NewWith] with the defaults of OpenTelemetry's specification.
func New(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	return NewWith(ctx, s, Defaults{})
}

// NewWith returns an exporter configured by the variables of [EnvPatterns]. Settings
// without a variable come from the part "exporter" of the plugin's configuration, or
// else from d:
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
// Invalid values and unusable files are returned as [pluginsdk.ConfigError]s, all at
// once, each with the variable or the path in the configuration. NewWith does not wait
// for the network. The exporter is safe for concurrent use. An error of Export is final
// if OTLP defines the error as final. It never contains a header's value.
//
// NewWith disables the internal log of OpenTelemetry's API in this process
// (otel.SetLogger).
func NewWith(ctx context.Context, s pluginsdk.Setup, d Defaults) (pluginsdk.Exporter, error) {
	chosen, err := readSettings(s, d)
	if err != nil {
		return nil, err
	}
	// The clients read the environment, too. They log values that they cannot parse, which
	// may be secrets. All values have been checked by now.
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
	return &exporter{adviser{chosen}, to}, nil
}

// connection is a client and the function that closes its connections.
type connection struct {
	client otlptrace.Client
	close  func() error
}

type exporter struct {
	adviser    adviser
	connection connection
}

var _ pluginsdk.Exporter = (*exporter)(nil)

// Export makes one call to the back end.
func (e *exporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans, err := e.messages(b)
	if err != nil || len(spans) == 0 {
		return err
	}
	within, setting := e.callTimeout(ctx)
	own, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := &call{batchID: b.ID()}
	err = e.connection.client.UploadTraces(context.WithValue(own, callKey{}, c), spans)
	switch {
	case c.answered:
		return c.answer
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case own.Err() != nil || c.late:
		return e.adviser.slow(c, within, setting)
	case c.fault != nil:
		return errors.New(e.adviser.explained(c.fault.Error(), c.at))
	default: // the client ended the call before it used the transport
		return errors.New(e.adviser.explained(err.Error(), nil))
	}
}

// messages returns the batch in the client's form. JSON requires decoded messages: the
// client would omit undecoded ones.
func (e *exporter) messages(b *pluginsdk.Batch) ([]*tracepb.ResourceSpans, error) {
	if e.adviser.settings.protocol == protocolJSON {
		return b.Decode()
	}
	return b.Undecoded()
}

// Shutdown stops the client and closes the connections.
func (e *exporter) Shutdown(ctx context.Context) error {
	return errors.Join(e.connection.client.Stop(ctx), e.connection.close())
}

// callTimeout returns the timeout of a call, and the name of the setting behind it. The
// timeout ends a little before the host's deadline, so that the host gets the reason.
func (e *exporter) callTimeout(ctx context.Context) (within time.Duration, setting string) {
	const most = 250 * time.Millisecond
	deadline, ok := ctx.Deadline()
	left := time.Until(deadline)
	left -= min(most, left/10)
	if s := e.adviser.settings; !ok || s.timeout < left {
		return s.timeout, s.timeoutFrom
	}
	return left, envExportTimeout
}

// call carries a call's result from the transport to Export, because the client passes
// on only a part of it. The transport writes it, and Export reads it after the call.
type call struct {
	batchID  string
	answered bool     // the back end answered
	answer   error    // answer for the host; nil: delivered
	fault    error    // reason for which there is no answer
	late     bool     // the deadline passed
	at       *url.URL // the URL of the last request; nil for gRPC
	// connected reports that there was a connection for the batch.
	connected atomic.Bool
}

func (c *call) setAnswer(answer error) { c.answered, c.answer = true, answer }

type callKey struct{}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{} // cannot happen, because only Export uses the client
}
