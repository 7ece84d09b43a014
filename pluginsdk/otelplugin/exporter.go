package otelplugin

import (
	"context"
	"errors"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Exporter makes an OpenTelemetry exporter the exporter of a plugin. construct is
// called like any [pluginsdk.NewExporter]. Each batch is a single call of ExportSpans
// with all its spans. Calls never overlap, as in the SDK. Set Limits.MaxConcurrency to
// 1, so that the host sends batches one after another: a waiting batch uses up its
// deadline.
//
// The result of ExportSpans is the plugin's answer. Nil means delivered. After an error
// the host sends the batch again, except if the error contains a [pluginsdk.Permanent]
// or a final gRPC status. OTLP's partial success becomes a partial success of the
// plugin. Most HTTP exporters do not mark final statuses such as 400, so the batch is
// retried until it is too old. If this matters, wrap the exporter and return Permanent.
// Disable retries of the exporter itself if possible, because the host retries within
// its own limits.
//
// If the exporter has a method ForceFlush(context.Context) error, the plugin's Flush
// calls it.
func Exporter(construct func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error)) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		exporter, err := construct(ctx, s)
		if err != nil {
			return nil, err
		}
		if exporter == nil {
			return nil, errors.New("constructor returned neither a span exporter nor an error")
		}
		return &spanExporter{exporter, newTurn()}, nil
	}
}

type spanExporter struct {
	exporter sdktrace.SpanExporter
	turn     turn
}

var _ pluginsdk.Flusher = (*spanExporter)(nil)

// Export decodes the batch before it waits for its turn, so that another batch can be
// exported meanwhile.
func (e *spanExporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans, err := decodeAll(b)
	if err != nil || len(spans) == 0 {
		return err
	}
	return e.turn.do(ctx, func() error { return answer(e.exporter.ExportSpans(ctx, spans)) })
}

func (e *spanExporter) Flush(ctx context.Context) error {
	flusher, ok := e.exporter.(interface{ ForceFlush(context.Context) error })
	if !ok {
		return nil
	}
	return e.turn.do(ctx, func() error { return flusher.ForceFlush(ctx) })
}

// Shutdown does not wait for its turn, because it may have to end a running call.
func (e *spanExporter) Shutdown(ctx context.Context) error { return e.exporter.Shutdown(ctx) }

// TraceClient is the part of otlptrace.Client that a plugin needs; every
// otlptrace.Client implements it. It is declared here so that plugins without a client
// do not link OTLP's exporters. The rules of otlptrace.Client apply:
// https://pkg.go.dev/go.opentelemetry.io/otel/exporters/otlp/otlptrace#Client
type TraceClient interface {
	// Start is called once, when the plugin is configured.
	Start(ctx context.Context) error
	// Stop is called once, at the end.
	Stop(ctx context.Context) error
	// UploadTraces delivers spans and owns them. Calls may overlap.
	UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error
}

// Client makes an OTLP client (otlptracehttp.NewClient, otlptracegrpc.NewClient or a
// custom client) the exporter of a plugin. It is cheaper than an [Exporter] with the
// same client, which would convert spans to the SDK's and back, and it keeps every
// field of the protocol. construct must return a client that is not started. Calls of
// UploadTraces may overlap, up to Limits.MaxConcurrency. Errors mean the same as for
// [Exporter].
func Client(construct func(context.Context, pluginsdk.Setup) (TraceClient, error)) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		client, err := construct(ctx, s)
		if err != nil {
			return nil, err
		}
		if client == nil {
			return nil, errors.New("constructor returned neither a client nor an error")
		}
		if err := client.Start(ctx); err != nil { // as in otlptrace.New, which does not call Stop after an error
			return nil, err
		}
		return clientExporter{client}, nil
	}
}

type clientExporter struct{ client TraceClient }

func (e clientExporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans, err := b.Decode()
	if err != nil {
		return err
	}
	if len(spans) == 0 {
		return nil
	}
	return answer(e.client.UploadTraces(ctx, spans))
}

func (e clientExporter) Shutdown(ctx context.Context) error { return e.client.Stop(ctx) }

// turn is a mutex. A caller that waits for it stops waiting at the end of its context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) do(ctx context.Context, f func() error) error {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-t }()
	if ctx.Err() != nil { // both cases were ready
		return context.Cause(ctx)
	}
	return f()
}
