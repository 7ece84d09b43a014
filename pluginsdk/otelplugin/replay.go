package otelplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/pluginsdk"
)

// replayer passes ended spans to span processors as if they were starting and ending now.
type replayer struct {
	all []sdktrace.SpanProcessor
	// chunkSize is the number of spans that are replayed before all processors are flushed.
	chunkSize int
	turn      turn
	log       *slog.Logger
	heard     *listener
	// unflushed is set if the processors' queues may hold replayed spans. Guarded by turn.
	unflushed bool
}

// defaultChunkSize is the default chunk size. From 512 spans on, the SDK's batch processor
// delivers by itself and reports errors only to the global error handler. The default is
// well below that.
const defaultChunkSize = 256

func newReplayer(ctx context.Context, s pluginsdk.Setup, construct func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error)) (*replayer, error) {
	all, err := construct(ctx, s)
	if err != nil {
		return nil, err
	}
	log := cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	r := &replayer{all: all, chunkSize: chunkSizeFor(all), turn: newTurn(), log: log, heard: listen(log)}
	isNil := func(processor sdktrace.SpanProcessor) bool { return processor == nil }
	if i := slices.IndexFunc(all, isNil); i >= 0 {
		r.all = slices.DeleteFunc(slices.Clone(all), isNil) // the other processors are shut down, because they may have goroutines
		return nil, errors.Join(fmt.Errorf("span processor %d of %d is nil", i+1, len(all)), r.Shutdown(ctx))
	}
	return r, nil
}

// chunkSizeFor returns the number of spans that these processors can get before a flush,
// so that their queues do not overflow and nothing is delivered before the flush. It
// reads the configuration that the SDK's batch processor shows to loggers. For a batch
// processor wrapped in another processor, it assumes the defaults.
func chunkSizeFor(all []sdktrace.SpanProcessor) int {
	chunkSize := defaultChunkSize
	for _, processor := range all {
		marshaler, ok := processor.(interface{ MarshalLog() any })
		if !ok {
			continue
		}
		// This is the type in the SDK's batch_span_processor.go.
		info, ok := marshaler.MarshalLog().(struct {
			Type         string
			SpanExporter string
			Config       sdktrace.BatchSpanProcessorOptions
		})
		if ok {
			chunkSize = min(chunkSize, info.Config.MaxQueueSize, info.Config.MaxExportBatchSize-1)
		}
	}
	return max(1, chunkSize)
}

// batch replays b in chunks. Between OnStart and OnEnd it passes each span to edit, if
// edit is not nil. After each chunk it flushes the processors and passes the chunk's
// result and number of spans to judge. An error of judge ends the batch. If a previous
// batch has left spans in the queues because its deadline passed, they are flushed
// first. Otherwise the queues could be too full for this batch, and the processors could
// silently drop its spans.
func (r *replayer) batch(ctx context.Context, b *pluginsdk.Batch, edit func(*liveSpan, pluginsdk.Span), judge func(spans int, err error) error) error {
	d := newDecoder(b)
	played, all := 0, 0
	r.heard.open()
	defer r.heard.close()
	if r.unflushed {
		if err := r.flushChunk(ctx); r.unflushed {
			return err
		} // err is ignored: it is about an earlier batch, which was not acknowledged
	}
	for span := range b.Spans() {
		if played == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.unflushed = true
		live := newLiveSpan(d.stub(all, span))
		all++
		r.play(ctx, live, func() {
			if edit != nil {
				edit(live, span)
			}
		})
		if played++; played < r.chunkSize {
			continue
		}
		if err := judge(played, r.flushChunk(ctx)); err != nil {
			return err
		}
		played = 0
	}
	if played > 0 {
		if err := judge(played, r.flushChunk(ctx)); err != nil {
			return err
		}
	}
	return d.err()
}

// play replays a span: OnStart of all processors, in order, then started, then OnEnd of
// all processors with the resulting span.
func (r *replayer) play(ctx context.Context, live *liveSpan, started func()) {
	if parent := live.Parent(); parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}
	for _, processor := range r.all {
		processor.OnStart(ctx, live)
	}
	ended := live.seal().Snapshot()
	started()
	for _, processor := range r.all {
		processor.OnEnd(ended)
	}
}

// flushChunk flushes all processors, even if one fails. It returns the worst of their
// errors and of the errors reported meanwhile. It flushes twice: the SDK's batch
// processor also delivers from its own goroutine, by a timer, and the first ForceFlush
// can return before that goroutine has reported an error. The second waits for it. If
// ctx ends, the error says so.
func (r *replayer) flushChunk(ctx context.Context) error {
	flushErrs := make([]error, len(r.all))
	for range 2 {
		for i, processor := range r.all {
			if err := processor.ForceFlush(ctx); err != nil && flushErrs[i] == nil {
				flushErrs[i] = fmt.Errorf("flush %s: %w", r.name(i), err)
			}
		}
	}
	errs := append(slices.DeleteFunc(flushErrs, func(err error) bool { return err == nil }), r.heard.take()...)
	if ctx.Err() == nil {
		r.unflushed = false
	} else if len(errs) == 0 {
		errs = append(errs, context.Cause(ctx))
	}
	return worst(errs)
}

// Shutdown shuts down all processors in order, as a tracer provider does. The error
// includes the errors that were reported meanwhile, about spans that the processors had
// kept.
func (r *replayer) Shutdown(ctx context.Context) error {
	r.heard.open()
	defer r.heard.leave()
	var errs []error
	for i, processor := range r.all {
		if err := processor.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("shut down %s: %w", r.name(i), err))
		}
	}
	return errors.Join(append(errs, r.heard.take()...)...)
}

func (r *replayer) name(i int) string { return fmt.Sprintf("span processor %d (%T)", i+1, r.all[i]) }
