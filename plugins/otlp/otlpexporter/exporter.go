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
//  1. [New] reads the settings and the files they name, says in one line of the
//     log where spans go, and makes OpenTelemetry's own client. It connects to
//     nothing.
//  2. Export hands the batch to the client, undecoded, as one call. What the
//     back end answers is read from the wire: status, Retry-After, RetryInfo,
//     partial success. It becomes the answer to the host, in words that say what
//     to do about it.
//  3. Shutdown closes the connections.
//
// It keeps no queue and retries nothing: the host does, and knows for how long.
// It never follows a redirect to another machine, for headers hold credentials.
//
// Open this file first. settings.go says what can be asked for, endpoint.go,
// headers.go and tls.go read their parts of it; http.go and grpc.go are the two
// ways, answer.go is what answers mean, and fault.go what an operator is told
// where there was none.
package otlpexporter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/pluginsdk"
)

var _ pluginsdk.NewExporter = New

// Defaults are what a plugin of one's own sets where the operator sets nothing.
// The zero Defaults are those of OpenTelemetry's specification.
type Defaults struct {
	// Protocol is "http/protobuf" or "grpc". Empty: http/protobuf.
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
// its Export is final where OTLP says so, and never shows a header's value.
func NewWith(ctx context.Context, s pluginsdk.Setup, d Defaults) (pluginsdk.Exporter, error) {
	chosen, err := readSettings(s, d)
	if err != nil {
		return nil, err
	}
	connect := newHTTP
	if chosen.protocol == protocolGRPC {
		connect = newGRPC
	}
	way, err := connect(chosen)
	if err != nil {
		return nil, err
	}
	if err := way.client.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start client: %w", err), way.close())
	}
	chosen.announce(s.Log)
	return &exporter{settings: chosen, way: way}, nil
}

// way is a client and what to release after it.
type way struct {
	client otlptrace.Client
	close  func() error
}

type exporter struct {
	settings
	way
}

var _ pluginsdk.Exporter = (*exporter)(nil)

// Export is one call to the back end.
func (e *exporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	encoded := b.Bytes()
	spans, err := forward(encoded)
	if err != nil {
		return pluginsdk.Permanent(fmt.Errorf("malformed batch: %w", err))
	}
	if len(spans) == 0 {
		return nil
	}
	within, limit := e.patience(ctx)
	own, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := &call{bytes: len(encoded)}
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
		return e.explain(c.fault)
	default: // the client has ended the call before it began
		return e.explain(err)
	}
}

// Shutdown closes the connections.
func (e *exporter) Shutdown(ctx context.Context) error {
	return errors.Join(e.client.Stop(ctx), e.close())
}

// patience is how long a call may take, and the variable that says so. It ends
// a little before the host gives the call up, so that the host hears why.
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

// call is what the transport, or the interceptor, tells Export about it, past
// the client, which drops half of it.
type call struct {
	bytes int // of the batch
	// answered: the back end did, and answer is that for the host. Else fault may
	// be why it did not.
	answered bool
	answer   error
	fault    error
	hops     int  // redirects that were followed
	late     bool // the time was over
	// connected: there was a connection to send the batch on.
	connected atomic.Bool
}

type callKey struct{}

// callOf gives the call that ctx is of.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{} // never: only Export uses the client
}

// forward gives the batch as messages that the client encodes to the same bytes,
// and that nobody decodes: each ResourceSpans is empty, but for unknown fields,
// which are all it has. They alias encoded.
func forward(encoded []byte) ([]*tracepb.ResourceSpans, error) {
	const fieldResourceSpans = 1
	var list []*tracepb.ResourceSpans
	for len(encoded) > 0 {
		number, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, encoded[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		if number == fieldResourceSpans && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(encoded[n:])
			one := &tracepb.ResourceSpans{}
			one.ProtoReflect().SetUnknown(inner)
			list = append(list, one)
		}
		encoded = encoded[n+size:]
	}
	return list, nil
}
