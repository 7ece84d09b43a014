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
//  1. [New] reads the settings and the files that they name, and logs the destination of
//     the spans. It does not connect.
//  2. Export passes the batch, undecoded, to OpenTelemetry's own client, otlptracehttp or
//     otlptracegrpc. Each batch is one call.
//  3. The client sends through a transport of this package, an http.RoundTripper or a
//     gRPC interceptor. The transport converts the answer of the back end (status,
//     Retry-After, RetryInfo, partial success) to the error that Export returns, with
//     advice for the operator.
//  4. Shutdown stops the client and closes the connections.
//
// The exporter has no queue and retries nothing, because the host does both. It does not
// follow a redirect to another machine, because headers may hold credentials.
//
// Open this file first. settings.go lists the settings. endpoint.go, headers.go and
// tls.go read some of them. http.go and grpc.go make the two clients. answer.go converts
// answers, and fault.go explains why there was no answer.
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

// userAgent is the value of the header User-Agent in all requests. It has the exporter,
// its version and its language, as the specification requires:
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/#user-agent
var userAgent = "servetrace-otlp-exporter/" + pluginsdk.Version() + " (Go)"

// Defaults has a plugin's own defaults for settings that the operator does not set. The
// zero value has the defaults of OpenTelemetry's specification.
type Defaults struct {
	// Protocol is "http/protobuf", "http/json" or "grpc". Empty means http/protobuf.
	Protocol string
	// Endpoint has the form of OTEL_EXPORTER_OTLP_ENDPOINT: a URL, to which HTTP
	// appends /v1/traces. Empty means http://localhost:4318, or :4317 for gRPC.
	Endpoint string
	// Headers are sent with each call. A header of the operator with the same name, in upper
	// or lower case, replaces one of these. Their values never appear in logs or errors. Nil
	// means none.
	Headers map[string]string
}

// New is [NewWith] with the defaults of OpenTelemetry's specification.
func New(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
	return NewWith(ctx, s, Defaults{})
}

// NewWith returns an exporter that is configured by the variables of [EnvPatterns]. For
// variables that are not set, it uses the part "exporter" of the plugin's configuration,
// and then d:
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
// It returns a [pluginsdk.ConfigError] for each invalid value and each unusable file, all
// joined. NewWith does not wait for the network. The exporter is safe for concurrent use.
// An error of Export is final if OTLP defines it as final. Errors never contain the value
// of a header.
//
// NewWith disables the internal log of OpenTelemetry in this process (otel.SetLogger),
// because it could show secrets.
func NewWith(ctx context.Context, s pluginsdk.Setup, d Defaults) (pluginsdk.Exporter, error) {
	chosen, err := readSettings(s, d)
	if err != nil {
		return nil, err
	}
	// OpenTelemetry's clients read the environment, too, and log values that they cannot
	// parse. Such a value may be a secret. The log is not needed, because readSettings has
	// checked all values.
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

// connection is a client of OpenTelemetry, and the function that closes its network
// connections.
type connection struct {
	client otlptrace.Client
	close  func() error
}

// exporter implements [pluginsdk.Exporter] with a client of OpenTelemetry.
type exporter struct {
	adviser    adviser // has the settings, and adds advice for the operator to errors
	connection connection
}

var _ pluginsdk.Exporter = (*exporter)(nil)

// call carries the result of a call from the transport to Export, because the client
// between them drops details. The transport writes it during the call, and Export reads
// it afterwards.
type call struct {
	batchID  string
	answered bool     // the back end answered
	answer   error    // the error for the host; nil if the spans are delivered
	fault    error    // the reason for which there is no answer
	late     bool     // the deadline passed before there was an answer
	at       *url.URL // the URL of the last request; nil for gRPC
	// connected reports that the call had a network connection.
	connected atomic.Bool
}

func (c *call) setAnswer(answer error) { c.answered, c.answer = true, answer }

// callKey is the key of a call in the context of the client.
type callKey struct{}

// callOf returns the call in the context of a request.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{} // cannot happen, because only Export calls the client
}

// Export delivers the batch by one call to the back end. If the back end answered, its answer
// decides, and not the error of the client.
func (e *exporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans, err := e.messages(b)
	if err != nil || len(spans) == 0 {
		return err
	}
	within, setting := e.callTimeout(ctx)
	own, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := &call{batchID: b.ID()} // the transport writes the answer into c
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
	default: // the client has failed before it used the transport
		return errors.New(e.adviser.explained(err.Error(), nil))
	}
}

// messages returns the batch as an argument for the client. For JSON it decodes the
// batch, because the client would omit the fields of an undecoded batch.
func (e *exporter) messages(b *pluginsdk.Batch) ([]*tracepb.ResourceSpans, error) {
	if e.adviser.settings.protocol == protocolJSON {
		return b.Decode()
	}
	return b.Undecoded()
}

// callTimeout returns the timeout of a call, and the name of the setting that decides it.
// The timeout ends a little before the host's deadline, so that the host still gets the
// reason of a failure.
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

// Shutdown stops the client and closes the connections.
func (e *exporter) Shutdown(ctx context.Context) error {
	return errors.Join(e.connection.client.Stop(ctx), e.connection.close())
}
