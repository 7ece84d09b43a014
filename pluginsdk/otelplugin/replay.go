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

// replayer passes finished spans to span processors, by calls of OnStart and OnEnd, as if
// the spans were starting and ending now.
type replayer struct {
	all []sdktrace.SpanProcessor
	// chunkSize is the number of spans after which all span processors are flushed.
	chunkSize int
	mutex     ctxMutex
	log       *slog.Logger
	heard     *listener
	// unflushed reports that queues of the span processors may hold replayed spans. The
	// field mutex guards it.
	unflushed bool
}

// defaultChunkSize is the default of chunkSize. With 512 spans in its queue, the SDK's
// batch processor begins to deliver by itself, and reports errors only to otel.Handle.
// The default is well below that number.
const defaultChunkSize = 256

func newReplayer(ctx context.Context, s pluginsdk.Setup, construct func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error)) (*replayer, error) {
	all, err := construct(ctx, s)
	if err != nil {
		return nil, err
	}
	log := cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	r := &replayer{all: all, chunkSize: chunkSizeFor(all), mutex: newCtxMutex(), log: log, heard: listen(log)}
	isNil := func(processor sdktrace.SpanProcessor) bool { return processor == nil }
	if i := slices.IndexFunc(all, isNil); i >= 0 {
		r.all = slices.DeleteFunc(slices.Clone(all), isNil) // the other processors must be shut down, because they may have goroutines
		return nil, errors.Join(fmt.Errorf("span processor %d of %d is nil", i+1, len(all)), r.Shutdown(ctx))
	}
	return r, nil
}

// chunkSizeFor returns the largest number of spans that these processors may get before a
// flush. With this number, no queue overflows, and the SDK's batch processor does not
// deliver by itself. It reads the queue size from the information that the batch
// processor offers to loggers. For a batch processor inside of another processor, it
// assumes the defaults.
func chunkSizeFor(all []sdktrace.SpanProcessor) int {
	chunkSize := defaultChunkSize
	for _, processor := range all {
		marshaler, ok := processor.(interface{ MarshalLog() any })
		if !ok {
			continue
		}
		// MarshalLog returns a struct of exactly this type, declared in the SDK's
		// batch_span_processor.go.
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

// batch replays b in chunks. It calls edit, unless that is nil, for each span between
// OnStart and OnEnd. After each chunk it flushes the processors, and calls judge with the
// number of spans and the worst error. If judge returns an error, the batch ends. Before
// the first chunk, it flushes spans that an earlier batch has left in the queues because
// its deadline passed. Otherwise a queue could be too full, and silently drop spans.
func (r *replayer) batch(ctx context.Context, b *pluginsdk.Batch, edit func(*liveSpan, pluginsdk.Span), judge func(spans int, err error) error) error {
	d := newDecoder(b)
	played, all := 0, 0
	r.heard.open()
	defer r.heard.close()
	if r.unflushed {
		if err := r.flushChunk(ctx); r.unflushed {
			return err
		} // other errors are ignored: they are about an earlier batch, which the host sends again
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

// play replays one span. It calls OnStart of all processors in order, then started, and
// then OnEnd of all processors with the resulting span.
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
// errors and of the errors reported to otel.Handle, or the cause of the end of ctx. It
// calls ForceFlush twice, because the SDK's batch processor also delivers from its own
// goroutine. The first ForceFlush can return before that goroutine has reported an error;
// the second waits for it.
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

// Shutdown shuts down all processors in order, as a tracer provider does. It returns
// their errors, joined with the errors reported to otel.Handle meanwhile, which are about
// spans in their queues.
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
