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

// replayer plays finished spans to span processors as if they happened now.
type replayer struct {
	all []sdktrace.SpanProcessor
	// piece is how many spans are played before all processors are flushed.
	piece int
	turn  turn
	log   *slog.Logger
	heard *listener
	// unflushed: of what was played something may still lie in the processors'
	// queues. Whoever has the turn owns it.
	unflushed bool
}

// defaultPiece is how many spans are in a piece: well below 512, at which the
// SDK's batch processor begins to deliver behind one's back, where its errors
// are seen by the global error handler only.
const defaultPiece = 256

func newReplayer(ctx context.Context, s pluginsdk.Setup, construct func(context.Context, pluginsdk.Setup) ([]sdktrace.SpanProcessor, error)) (*replayer, error) {
	all, err := construct(ctx, s)
	if err != nil {
		return nil, err
	}
	log := cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	r := &replayer{all: all, piece: pieceFor(all), turn: newTurn(), log: log, heard: listen(log)}
	isNil := func(processor sdktrace.SpanProcessor) bool { return processor == nil }
	if i := slices.IndexFunc(all, isNil); i >= 0 {
		r.all = slices.DeleteFunc(slices.Clone(all), isNil) // may have goroutines
		return nil, errors.Join(fmt.Errorf("span processor %d of %d is nil", i+1, len(all)), r.Shutdown(ctx))
	}
	return r, nil
}

// pieceFor is how many spans these processors can be fed before a flush, so
// that their queues take all, and nothing is delivered before the flush. It
// reads what the SDK's batch processor tells loggers about itself; of one that
// is hidden in another it knows nothing, and takes the defaults for granted.
func pieceFor(all []sdktrace.SpanProcessor) int {
	piece := defaultPiece
	for _, processor := range all {
		teller, ok := processor.(interface{ MarshalLog() any })
		if !ok {
			continue
		}
		// The SDK's own, as it stands in its batch_span_processor.go.
		told, ok := teller.MarshalLog().(struct {
			Type         string
			SpanExporter string
			Config       sdktrace.BatchSpanProcessorOptions
		})
		if ok {
			piece = min(piece, told.Config.MaxQueueSize, told.Config.MaxExportBatchSize-1)
		}
	}
	return max(1, piece)
}

// batch plays b in pieces. After OnStart and before OnEnd each span is given to
// edit, if there is one. After each piece the processors are flushed, and what
// the piece met is given to judge, nil for nothing, together with the number of
// its spans; an error of judge ends the batch. What a batch before has left in
// the queues, because its time was over, is flushed first: else the processors
// might have no room for this one, and drop it without a word.
func (r *replayer) batch(ctx context.Context, b *pluginsdk.Batch, edit func(*liveSpan, pluginsdk.Span), judge func(spans int, err error) error) error {
	d := newDecoder(b)
	played, all := 0, 0
	r.heard.open()
	defer r.heard.close()
	if r.unflushed {
		if err := r.flushPiece(ctx); r.unflushed {
			return err
		} // otherwise it is about spans that were not answered as delivered
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
		if played++; played < r.piece {
			continue
		}
		if err := judge(played, r.flushPiece(ctx)); err != nil {
			return err
		}
		played = 0
	}
	if played > 0 {
		if err := judge(played, r.flushPiece(ctx)); err != nil {
			return err
		}
	}
	return d.err()
}

// play is the life of a span: it starts for all processors in order, and ends
// for all, with what they made of it. started is called in between.
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

// flushPiece flushes all processors, also where one fails, and gives the worst
// of what they returned and of what was reported meanwhile. It does so twice:
// the SDK's batch processor delivers from a goroutine of its own too, when its
// timer says so, and the first ForceFlush can return before that has reported
// what failed. The second waits for it, and finds nothing else to do. Where ctx
// ends, the error says so.
func (r *replayer) flushPiece(ctx context.Context) error {
	met := make([]error, len(r.all))
	for range 2 {
		for i, processor := range r.all {
			if err := processor.ForceFlush(ctx); err != nil && met[i] == nil {
				met[i] = fmt.Errorf("flush %s: %w", r.name(i), err)
			}
		}
	}
	errs := append(slices.DeleteFunc(met, func(err error) bool { return err == nil }), r.heard.take()...)
	if ctx.Err() == nil {
		r.unflushed = false
	} else if len(errs) == 0 {
		errs = append(errs, context.Cause(ctx))
	}
	return worst(errs)
}

// Shutdown shuts all processors down in order, as a tracer provider does, and
// tells what they report meanwhile: spans that they kept.
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
