package otelplugin

import (
	"context"
	"errors"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// Processors makes OpenTelemetry span processors one processor of a plugin,
// before its exporter. What they add to a span in OnStart, the plugin's later
// processors and its exporter see. They can not drop spans.
//
// It is for processors that enrich or watch. One that delivers belongs into
// [Pipeline], or better, its exporter into [Exporter]: here, the batch goes no
// further if delivery fails, and after a retry both have it twice.
//
// construct is called as any [pluginsdk.NewProcessor] is; no processor at all is
// fine. Batches come one after another.
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

// Name is for errors: these processors drop nothing.
func (processors) Name() string { return "opentelemetry" }

// Process takes partial success for a remark: the exporter of the plugin
// decides what became of the batch, and has not seen it yet.
func (p processors) Process(ctx context.Context, b *pluginsdk.Batch) error {
	if len(p.all) == 0 {
		return nil
	}
	return p.turn.do(ctx, func() error {
		return p.batch(ctx, b, func(live *liveSpan, s pluginsdk.Span) { live.writeTo(s) }, func(_ int, err error) error {
			if rejected, message, ok := partial(err); ok {
				p.log.Warn("a span processor delivered in part", "rejected", rejected, "message", message)
				return nil
			}
			return err
		})
	})
}

// Pipeline makes OpenTelemetry span processors the exporter of a plugin: a list
// as it is given to a tracer provider, of which some enrich, or watch, and at
// least one delivers. It is the counterpart of a function that returns a list
// of span processors, as Ray Serve takes one.
//
// A processor that batches by itself (sdktrace.NewBatchSpanProcessor) is fed in
// pieces that fit its queue and flushed after each; the package comment says
// what that can and can not promise. If a piece has to be sent again, all of the
// batch comes again, to all processors. For one back end, [Exporter] is the
// better way, for several pluginsdk.Tee of Exporters, which sends again only to
// the one that failed.
//
// construct is called as any [pluginsdk.NewExporter] is. Batches come one after
// another: set Limits.MaxConcurrency to 1, as for an [Exporter]. A batch and all
// its flushes have one deadline, the host's; where the back end is slow, set
// Limits.MaxBatchSpans to 256, and each flush has one.
func Pipeline(construct func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error)) pluginsdk.NewExporter {
	return func(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		r, err := newReplayer(ctx, s, construct)
		if err != nil {
			return nil, err
		}
		if len(r.all) == 0 {
			return nil, errors.Join(errors.New("no span processors: spans would go nowhere and count as delivered"), r.Shutdown(ctx))
		}
		return pipeline{r}, nil
	}
}

type pipeline struct{ *replayer }

var _ pluginsdk.Flusher = pipeline{}

func (p pipeline) Export(ctx context.Context, b *pluginsdk.Batch) error {
	return p.turn.do(ctx, func() error {
		var became tally
		if err := p.batch(ctx, b, nil, became.add); err != nil {
			return err
		}
		return became.answer()
	})
}

// Flush takes a turn: what it met of a batch under way would be missed there.
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
