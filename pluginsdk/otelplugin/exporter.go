package otelplugin

import (
	"context"
	"errors"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Exporter makes an exporter of OpenTelemetry's SDK the exporter of a plugin. construct
// obeys the rules of [pluginsdk.NewExporter]. Each batch becomes one call of ExportSpans
// with all its spans. As in the SDK, only one call runs at a time. So set
// Limits.MaxConcurrency to 1: otherwise the host sends several batches, and those that
// wait use up their deadlines.
//
// The error of ExportSpans is the answer to the host. Nil means delivered. After an error
// the host sends the batch again, unless the error wraps [pluginsdk.Permanent] or a final
// gRPC status. OTLP's partial success becomes [pluginsdk.Partial]. Most HTTP exporters do
// not mark errors such as status 400 as final, so the host sends the batch again until it
// is too old. If this matters, wrap the exporter and return Permanent. If possible,
// disable retries in the exporter, because the host retries.
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
		return &spanExporter{exporter, newCtxMutex()}, nil
	}
}

type spanExporter struct {
	exporter sdktrace.SpanExporter
	mutex    ctxMutex
}

var _ pluginsdk.Flusher = (*spanExporter)(nil)

// Export decodes the batch before it waits for the mutex, so that it can decode while
// another batch is exported.
func (e *spanExporter) Export(ctx context.Context, b *pluginsdk.Batch) error {
	spans, err := decodeAll(b)
	if err != nil || len(spans) == 0 {
		return err
	}
	return e.mutex.do(ctx, func() error { return answer(e.exporter.ExportSpans(ctx, spans)) })
}

func (e *spanExporter) Flush(ctx context.Context) error {
	flusher, ok := e.exporter.(interface{ ForceFlush(context.Context) error })
	if !ok {
		return nil
	}
	return e.mutex.do(ctx, func() error { return flusher.ForceFlush(ctx) })
}

// Shutdown does not wait for the mutex, because it may have to end a running call of
// ExportSpans.
func (e *spanExporter) Shutdown(ctx context.Context) error { return e.exporter.Shutdown(ctx) }

// TraceClient has the methods of otlptrace.Client that a plugin needs, so every
// otlptrace.Client implements it. It is declared here so that plugins without a client do
// not link OTLP's exporters. The rules of otlptrace.Client apply:
// https://pkg.go.dev/go.opentelemetry.io/otel/exporters/otlp/otlptrace#Client
type TraceClient interface {
	// Start is called once, when the plugin is configured.
	Start(ctx context.Context) error
	// Stop is called once, when the plugin shuts down.
	Stop(ctx context.Context) error
	// UploadTraces delivers spans. It may keep and change them. Several calls may run at the
	// same time.
	UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error
}

// Client makes an OTLP client the exporter of a plugin: otlptracehttp.NewClient,
// otlptracegrpc.NewClient or another. It costs less than an [Exporter] with the same
// client, which would convert OTLP to the SDK's spans and back. It also keeps every field
// of OTLP. construct must return a client that is not started. Up to
// Limits.MaxConcurrency calls of UploadTraces may run at the same time. Errors mean the
// same as for [Exporter].
func Client(construct func(context.Context, pluginsdk.Setup) (TraceClient, error)) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		client, err := construct(ctx, s)
		if err != nil {
			return nil, err
		}
		if client == nil {
			return nil, errors.New("constructor returned neither a client nor an error")
		}
		if err := client.Start(ctx); err != nil { // Stop is not called after an error, as in otlptrace.New
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

// ctxMutex is a mutex. A caller waits for it only until its context ends.
type ctxMutex chan struct{}

func newCtxMutex() ctxMutex { return make(ctxMutex, 1) }

func (m ctxMutex) do(ctx context.Context, f func() error) error {
	select {
	case m <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m }()
	if ctx.Err() != nil { // select chooses at random if both cases are ready
		return context.Cause(ctx)
	}
	return f()
}
