package pluginsdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// Tee returns the constructor of one exporter that combines several exporters, for a plugin
// with several back ends. Each exporter gets every batch, as a [Batch] of its own, and all
// of them work at the same time. Tee returns the worst of their answers to the host:
//
//   - If an exporter returns a retryable error, Tee returns a retryable error, with the
//     longest delay of any [RetryAfter]. When the host sends the batch again, only the
//     exporters without a final answer get it.
//   - Otherwise, if an exporter returns a [Permanent] error, Tee returns it with the name of
//     the exporter. The host counts the batch as rejected, although other exporters may
//     have delivered it.
//   - Otherwise, Tee adds up the numbers of all [Partial] errors, because each exporter may
//     have rejected other spans. The sum is at most the number of spans in the batch.
//   - Otherwise, Tee returns nil.
//
// Tee remembers final answers by [Batch.ID] in memory, for the last 1,024 batches that some
// exporters have not finished. After a crash, and for batches without an id, all exporters
// get the batch again. So a back end must accept that a span arrives twice.
//
// All exporters get the same [Setup], with one configuration document. They are constructed
// in order. They are flushed and shut down at the same time. If one back end is down, the
// host sends less, which also delays the batches for the other back ends. To prevent that,
// use a plugin for each back end.
func Tee(exporters ...NewExporter) NewExporter {
	return func(ctx context.Context, s Setup) (Exporter, error) {
		t := &tee{log: cmp.Or(s.Log, slog.New(slog.DiscardHandler))}
		var faults []error
		if len(exporters) == 0 {
			faults = append(faults, errors.New("a Tee of no exporters"))
		}
		for i, construct := range exporters {
			exporter, err := constructPart(ctx, s, construct)
			if err == nil {
				t.exporters = append(t.exporters, exporter)
				continue
			}
			list := members(err)
			if list == nil {
				list = []error{err}
			}
			faults = append(faults, joinEach(list, func(one error) error {
				return fmt.Errorf("exporter %d of %d: %w", i+1, len(exporters), one)
			}))
		}
		if len(faults) > 0 {
			return nil, errors.Join(append(faults, t.Shutdown(ctx))...)
		}
		return t, nil
	}
}

// constructPart calls the constructor of one exporter of a Tee.
func constructPart(ctx context.Context, s Setup, construct NewExporter) (Exporter, error) {
	if construct == nil {
		return nil, errors.New("constructor is nil")
	}
	exporter, err := construct(ctx, s)
	if err == nil && exporter == nil {
		err = errors.New("constructor gave neither a value nor an error")
	}
	return exporter, err
}

// tee is the exporter that Tee constructs.
type tee struct {
	exporters []Exporter
	log       *slog.Logger
	memory    teeMemory
}

var (
	_ Exporter = (*tee)(nil)
	_ Flusher  = (*tee)(nil)
)

// Export sends the batch to each exporter that has not given a final answer to it before.
func (t *tee) Export(ctx context.Context, b *Batch) error {
	encoded := b.Bytes()
	known := t.memory.recall(b.ID())
	answers := make([]error, len(t.exporters))
	t.all(func(i int, exporter Exporter) {
		answer, isKnown := known[i]
		if isKnown {
			answers[i] = answer
			return
		}
		part := &Batch{id: b.id, attempt: b.attempt, raw: encoded}
		answer = t.guard(i, func() error { return exporter.Export(ctx, part) })
		if err := part.malformed(); err != nil {
			answer = fmt.Errorf("%s: %w", t.name(i), err)
		}
		answers[i] = answer
		if !isRetryable(answer) {
			t.memory.remember(b.ID(), i, detached(answer))
		}
	})
	worst := t.worst(answers)
	if !isRetryable(worst) {
		t.memory.forget(b.ID())
	}
	return worst
}

// isRetryable reports whether the host must send a batch with this answer again.
func isRetryable(answer error) bool {
	return answer != nil && asPartial(answer) == nil && !Final(answer)
}

// detached returns an answer with the same meaning and a short text. Unlike the original, it
// keeps no other memory alive.
func detached(answer error) error {
	if answer == nil {
		return nil
	}
	if partial := asPartial(answer); partial != nil {
		return &partialError{partial.rejected, wire.Clip(partial.message)}
	}
	return wire.FromStatus(wire.ToStatus(answer))
}

// worst returns one error for all retryable answers. If there are none, it returns one error
// for all final errors, and otherwise one for all partial successes. It returns nil if every
// exporter has delivered the whole batch.
func (t *tee) worst(answers []error) error {
	var again, refused []error
	var messages []string
	delay, rejected := time.Duration(0), 0
	for i, answer := range answers {
		partial := asPartial(answer)
		switch {
		case answer == nil:
		case partial != nil:
			rejected += min(partial.rejected, math.MaxInt32)
			messages = append(messages, t.name(i)+": "+partial.message)
		case isRetryable(answer):
			again = append(again, answer)
			delay = max(delay, wire.FromStatus(wire.ToStatus(answer)).After)
		default:
			refused = append(refused, answer)
		}
	}
	switch {
	case len(again) == 1: // a single error keeps its code
		return again[0]
	case len(again) > 0:
		return RetryAfter(errors.Join(again...), delay)
	case len(refused) == 1:
		return refused[0]
	case len(refused) > 0:
		return Permanent(errors.Join(refused...))
	case len(messages) > 0:
		return Partial(rejected, strings.Join(messages, "; "))
	}
	return nil
}

func (t *tee) name(i int) string { return fmt.Sprintf("exporter %d of %d", i+1, len(t.exporters)) }

// Flush flushes each exporter that is a Flusher.
func (t *tee) Flush(ctx context.Context) error {
	return t.each(func(exporter Exporter) error {
		if flusher, ok := exporter.(Flusher); ok {
			return flusher.Flush(ctx)
		}
		return nil
	})
}

// Shutdown shuts all exporters down.
func (t *tee) Shutdown(ctx context.Context) error {
	return t.each(func(exporter Exporter) error { return exporter.Shutdown(ctx) })
}

// each calls f for all exporters at the same time. It joins the errors, each with the name of
// its exporter.
func (t *tee) each(f func(Exporter) error) error {
	faults := make([]error, len(t.exporters))
	t.all(func(i int, exporter Exporter) {
		faults[i] = t.guard(i, func() error { return f(exporter) })
	})
	return errors.Join(faults...)
}

// all calls f for all exporters at the same time, and returns when all calls have returned.
func (t *tee) all(f func(i int, exporter Exporter)) {
	var calls sync.WaitGroup
	for i, exporter := range t.exporters {
		calls.Go(func() { f(i, exporter) })
	}
	calls.Wait()
}

// guard calls f, which is code of exporter i. It converts a panic to an error, because f runs
// in a goroutine of its own, and an unhandled panic there would end the process.
func (t *tee) guard(i int, f func() error) error { return guard(t.log, t.name(i), f) }
