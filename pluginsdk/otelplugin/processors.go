package otelplugin

import (
	"context"
	"errors"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Processors makes span processors of OpenTelemetry's SDK one processor of a plugin. The
// plugin's later processors and its exporter see everything that OnStart adds to a span.
// The span processors cannot drop spans.
//
// Use it for span processors that enrich or observe spans. For a span processor that
// delivers spans, use [Pipeline], or better, [Exporter] for its exporter. Under
// Processors, a failed delivery would keep the batch from the plugin's exporter, and each
// retry of the batch would deliver its spans again.
//
// construct obeys the rules of [pluginsdk.NewProcessor]. It may return an empty list.
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

// Name returns a name for errors. The delivery accounting does not use it, because these
// processors drop no spans.
func (processors) Name() string { return "opentelemetry" }

// Process replays the batch, and makes the additions of OnStart edits of it. A partial
// success of a span processor is only logged, because the plugin's exporter decides the
// result of the batch.
func (p processors) Process(ctx context.Context, b *pluginsdk.Batch) error {
	if len(p.all) == 0 {
		return nil
	}
	return p.mutex.do(ctx, func() error {
		return p.batch(ctx, b, func(live *liveSpan, s pluginsdk.Span) { live.writeTo(s) }, func(_ int, err error) error {
			if rejected, message, ok := partial(err); ok {
				p.log.Warn("a span processor reported a partial success", "rejected", rejected, "message", message)
				return nil
			}
			return err
		})
	})
}

// Pipeline makes span processors of OpenTelemetry's SDK the exporter of a plugin. The
// list is the same as for a tracer provider: some span processors enrich or observe
// spans, and at least one delivers them. Ray Serve's function that returns a list of span
// processors has the same purpose.
//
// A span processor with its own batches, such as sdktrace.NewBatchSpanProcessor, gets
// chunks of spans that fit its queue, and is flushed after each chunk. The package
// comment describes the guarantees. If the delivery of a chunk must be repeated, the host
// sends the whole batch again, to all span processors. For a single back end, prefer
// [Exporter]. For several back ends, prefer pluginsdk.Tee, which repeats only the
// exporters that have failed.
//
// construct obeys the rules of [pluginsdk.NewExporter]. Batches are processed one after
// another, so set Limits.MaxConcurrency to 1, as for an [Exporter]. All chunks of a batch
// share the host's deadline. If the back end is slow, set Limits.MaxBatchSpans to 256, so
// that each chunk is a batch with its own deadline.
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
	return p.mutex.do(ctx, func() error {
		var result tally
		if err := p.batch(ctx, b, nil, result.add); err != nil {
			return err
		}
		return result.answer()
	})
}

// Flush waits until no batch is replayed, so that it does not take the errors of a batch.
func (p pipeline) Flush(ctx context.Context) error {
	return p.mutex.do(ctx, func() error {
		var errs []error
		for i, processor := range p.all {
			if err := processor.ForceFlush(ctx); err != nil {
				errs = append(errs, fmt.Errorf("flush %s: %w", p.name(i), err))
			}
		}
		return errors.Join(errs...)
	})
}
