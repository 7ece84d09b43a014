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
//  1. [New] reads the settings and the files they name, and says in one line of
//     the log where spans go. It connects to nothing.
//  2. Export sends the batch as it is, undecoded, as one call. What the back end
//     answers is read from the wire: status, Retry-After, RetryInfo, partial
//     success. It becomes the answer to the host, in words that say what to do
//     about it.
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
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/servetrace/servetrace/internal/lent"
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
func NewWith(_ context.Context, s pluginsdk.Setup, d Defaults) (pluginsdk.Exporter, error) {
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
	chosen.announce(s.Log)
	return &exporter{settings: chosen, way: way}, nil
}

// way is how batches reach the back end.
type way struct {
	// send is one call with an encoded batch. Where the back end answers it notes
	// the answer in the call; else its error is why there was none. The pieces are
	// the caller's: what is read of them after the return needs a reference.
	send  func(ctx context.Context, c *call, pieces mem.BufferSlice) error
	close func() error
}

type exporter struct {
	settings
	way
}

var (
	_ pluginsdk.Exporter = (*exporter)(nil)
	_ lent.Exporter      = (*exporter)(nil)
)

// Export is one call to the back end.
func (e *exporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	return e.export(ctx, mem.BufferSlice{mem.SliceBuffer(b.Bytes())}) // which nobody frees
}

// ExportLent is Export of a batch that nobody has looked into.
func (e *exporter) ExportLent(ctx context.Context, b lent.Batch) error {
	return e.export(ctx, b.Pieces)
}

func (e *exporter) export(ctx context.Context, pieces mem.BufferSlice) error {
	if something, err := holdsSpans(pieces); err != nil || !something {
		return err
	}
	within, limit := e.patience(ctx)
	own, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := &call{bytes: pieces.Len()}
	err := e.send(own, c, pieces)
	switch {
	case c.answered:
		return c.answer
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case own.Err() != nil || c.late:
		return e.slow(c, within, limit)
	default:
		return e.explain(err)
	}
}

// Shutdown closes the connections.
func (e *exporter) Shutdown(context.Context) error { return e.close() }

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

// call is what becomes of one call.
type call struct {
	bytes int // of the batch
	// answered: the back end did, and answer is that for the host.
	answered bool
	answer   error
	late     bool // the time was over
	// connected: there was a connection to send the batch on.
	connected atomic.Bool
}

// answers notes what the back end said, nil for delivered.
func (c *call) answers(answer error) { c.answered, c.answer = true, answer }

// holdsSpans tells whether a request has anything in it, without a look into
// its ResourceSpans. An error is final: it is no request.
func holdsSpans(pieces mem.BufferSlice) (bool, error) {
	if len(pieces) != 1 {
		if something, plain := holdsMessages(pieces); plain {
			return something, nil
		}
	}
	const fieldResourceSpans = 1
	found := false
	for encoded := whole(pieces); len(encoded) > 0; {
		number, kind, n := protowire.ConsumeField(encoded)
		if n < 0 {
			return false, pluginsdk.Permanent(fmt.Errorf("malformed batch: %w", protowire.ParseError(n)))
		}
		found = found || number == fieldResourceSpans && kind == protowire.BytesType
		encoded = encoded[n:]
	}
	return found, nil
}

// holdsMessages is holdsSpans for what is plainly a list of ResourceSpans, as a
// host sends it.
func holdsMessages(pieces mem.BufferSlice) (something, plain bool) {
	const tagResourceSpans = 1<<3 | 2
	r := pieces.Reader()
	defer func() { _ = r.Close() }()
	for r.Remaining() > 0 {
		tag, err := r.ReadByte()
		if err != nil || tag != tagResourceSpans {
			return false, false
		}
		size, err := binary.ReadUvarint(r)
		if err != nil || size > uint64(r.Remaining()) {
			return false, false
		}
		if _, err := r.Discard(int(size)); err != nil {
			return false, false
		}
		something = true
	}
	return something, true
}

// whole gives the pieces as one, copied if they are several.
func whole(pieces mem.BufferSlice) []byte {
	if len(pieces) == 1 {
		return pieces[0].ReadOnlyData()
	}
	return pieces.Materialize()
}
