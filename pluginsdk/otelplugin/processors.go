package otelplugin

import (
	"context"
	"errors"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Processors makes OpenTelemetry span processors a processor of a plugin, before its
// exporter. The plugin's later processors and its exporter see the additions of
// OnStart. The processors cannot drop spans.
//
// Use it for processors that enrich or observe spans. Use [Pipeline] for a processor
// that delivers spans, or better, [Exporter] for its exporter. With Processors, a failed
// delivery would stop the batch before the plugin's exporter. After each retry of the
// batch, the processor would deliver its spans again.
//
// construct is called like any [pluginsdk.NewProcessor] and may return no processors.
// Batches are processed one after another.
func Processors(construct func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error)) pluginsdk.NewProcessor {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
		r, err := newReplayer(ctx, s, construct)
		if err != nil {
			return nil, err
		}
		return processors{r}, nil
	}
}

type processors struct{ *replayer }

var (
	_ pluginsdk.Named   = processors{}
	_ pluginsdk.Stopper = processors{}
)

// Name returns a name for errors. These processors drop no spans.
func (processors) Name() string { return "opentelemetry" }

// Process logs a partial success and ignores it, because the plugin's exporter decides
// the result of the batch.
func (p processors) Process(ctx context.Context, b *pluginsdk.Batch) error {
	if len(p.all) == 0 {
		return nil
	}
	return p.turn.do(ctx, func() error {
		return p.batch(ctx, b, func(live *liveSpan, s pluginsdk.Span) { live.writeTo(s) }, func(_ int, err error) error {
			if rejected, message, ok := partial(err); ok {
				p.log.Warn("a span processor reported a partial success", "rejected", rejected, "message", message)
				return nil
			}
			return err
		})
	})
}

// Pipeline makes OpenTelemetry span processors the exporter of a plugin. The list is
// the same as for a tracer provider: some processors enrich or observe, and at least
// one delivers. It corresponds to Ray Serve's function that returns a list of span
// processors.
//
// A processor that batches by itself (sdktrace.NewBatchSpanProcessor) gets chunks that
// fit its queue, and is flushed after each. The package comment describes the
// guarantees. If a chunk must be sent again, the whole batch is sent again, to all
// processors. For a single back end, prefer [Exporter]. For several back ends, prefer
// pluginsdk.Tee of Exporters, which sends again only to the exporter that failed.
//
// construct is called like any [pluginsdk.NewExporter]. Batches are processed one after
// another: set Limits.MaxConcurrency to 1, as for an [Exporter]. A batch and all its
// flushes share the host's deadline. If the back end is slow, set Limits.MaxBatchSpans
// to 256, so that each flush has its own deadline.
func Pipeline(construct func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error)) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		r, err := newReplayer(ctx, s, construct)
		if err != nil {
			return nil, err
		}
		if len(r.all) == 0 {
			return nil, errors.Join(errors.New("no span processors: want at least one, or spans would count as delivered without a destination"), r.Shutdown(ctx))
		}
		return pipeline{r}, nil
	}
}

type pipeline struct{ *replayer }

var _ pluginsdk.Flusher = pipeline{}

func (p pipeline) Export(ctx context.Context, b *pluginsdk.Batch) error {
	return p.turn.do(ctx, func() error {
		var result tally
		if err := p.batch(ctx, b, nil, result.add); err != nil {
			return err
		}
		return result.answer()
	})
}

// Flush waits for its turn, so that it does not take the errors of a batch in progress.
func (p pipeline) Flush(ctx context.Context) error {
	return p.turn.do(ctx, func() error {
		var errs []error
		for i, processor := range p.all {
			if err := processor.ForceFlush(ctx); err != nil {
				errs = append(errs, fmt.Errorf("flush %s: %w", p.name(i), err))
			}
		}
		return errors.Join(errs...)
	})
}
