package otelplugin

import (
	"context"
	"errors"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Exporter makes an OpenTelemetry exporter that of a plugin. construct is
// called as any [pluginsdk.NewExporter] is. Each batch is one call to
// ExportSpans, with all its spans; calls never overlap, as under the SDK. Set
// Limits.MaxConcurrency to 1, so that the host sends one batch after another:
// one that waits for its turn here uses up its deadline.
//
// What ExportSpans returns is what the plugin answers: nil means delivered; an
// error, that the batch is sent again, unless it holds a [pluginsdk.Permanent]
// or a final gRPC status; OTLP's partial success is one of the plugin too. HTTP
// exporters seldom tell a final status such as 400 from others, and then it is
// tried again until the batch is too old: wrap the exporter and return Permanent
// where that matters. An exporter that retries by itself should have that
// switched off where it can be: the host retries, and knows for how long.
//
// If the exporter has a method ForceFlush(context.Context) error, the plugin
// has Flush.
func Exporter(construct func(context.Context, pluginsdk.Setup) (sdktrace.SpanExporter, error)) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		exporter, err := construct(ctx, s)
		if err != nil {
			return nil, err
		}
		if exporter == nil {
			return nil, errors.New("constructor gave neither a span exporter nor an error")
		}
		return &spanExporter{exporter, newTurn()}, nil
	}
}

type spanExporter struct {
	exporter sdktrace.SpanExporter
	turn     turn
}

var _ pluginsdk.Flusher = (*spanExporter)(nil)

// Export decodes before its turn, so that it does while another batch is on
// its way.
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

// Shutdown waits for no turn: it comes after the calls, or to end them.
func (e *spanExporter) Shutdown(ctx context.Context) error { return e.exporter.Shutdown(ctx) }

// TraceClient is what a plugin needs of an otlptrace.Client; every one is also
// a TraceClient. It is here so that a plugin that brings none does not link
// OTLP's exporters. Its rules are those of otlptrace.Client:
// https://pkg.go.dev/go.opentelemetry.io/otel/exporters/otlp/otlptrace#Client
type TraceClient interface {
	// Start is called once, when the plugin is configured.
	Start(ctx context.Context) error
	// Stop is called once, at the end.
	Stop(ctx context.Context) error
	// UploadTraces delivers spans, which are the callee's. Calls overlap.
	UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error
}

// Client makes an OTLP client (otlptracehttp.NewClient, otlptracegrpc.NewClient
// or one's own) the exporter of a plugin. It is cheaper than an [Exporter] of
// the same client, which would turn spans into the SDK's and back, and loses
// nothing that the protocol has. construct gives a client that is not started.
// Calls to UploadTraces overlap, up to Limits.MaxConcurrency. What it returns
// means what it means for [Exporter].
func Client(construct func(context.Context, pluginsdk.Setup) (TraceClient, error)) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		client, err := construct(ctx, s)
		if err != nil {
			return nil, err
		}
		if client == nil {
			return nil, errors.New("constructor gave neither a client nor an error")
		}
		if err := client.Start(ctx); err != nil { // no Stop: as otlptrace.New has it
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

// turn lets one call in at a time. Waiting ends with the caller's context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) do(ctx context.Context, f func() error) error {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-t }()
	if ctx.Err() != nil { // both were ready
		return context.Cause(ctx)
	}
	return f()
}
