package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// Tee returns the constructor of one exporter that combines several, for a plugin with
// several back ends. Each batch goes to all exporters at once, each time as a [Batch] of its
// own. A batch is delivered when every exporter has delivered it. The answer to the host is
// the worst answer:
//
//   - If an exporter wants the batch again, so does Tee, after the longest delay that any
//     exporter asked for ([RetryAfter]). On the retry, the batch goes only to the
//     exporters that have not taken it.
//   - Otherwise, if an exporter refuses the batch for good, so does Tee: the host counts
//     the batch as rejected although other exporters delivered it. The text names the
//     exporter.
//   - Otherwise, the numbers of [Partial] are added up, at most to the whole batch,
//     because the rejected spans may differ.
//
// Tee remembers by [Batch.ID] which exporters have taken a batch, for the last 1,024 batches
// that only some have taken. It does so in memory: after a crash, and for batches without an
// id, all exporters receive the batch again. As with any exporter, a back end must accept
// that a span arrives twice.
//
// All exporters receive the same [Setup], with one configuration document. They are
// constructed in order, and flushed and shut down at once. If one back end is down, the
// host sends less, and so delays the batches for the other back ends, too. If that must
// not happen, use a plugin for each back end.
func Tee(exporters ...NewExporter) NewExporter {
	return func(ctx context.Context, s Setup) (Exporter, error) {
		t := &tee{log: s.Log, taken: map[string][]*verdict{}}
		if t.log == nil {
			t.log = slog.New(slog.DiscardHandler)
		}
		var faults []error
		if len(exporters) == 0 {
			faults = append(faults, errors.New("a Tee of no exporters"))
		}
		for i, construct := range exporters {
			err := t.add(ctx, s, construct)
			list := members(err)
			if list == nil && err != nil {
				list = []error{err}
			}
			for _, one := range list {
				faults = append(faults, fmt.Errorf("exporter %d of %d: %w", i+1, len(exporters), one))
			}
		}
		if len(faults) > 0 {
			return nil, errors.Join(append(faults, t.Shutdown(ctx))...)
		}
		return t, nil
	}
}

type tee struct {
	exporters []Exporter
	log       *slog.Logger

	mu    sync.Mutex
	taken map[string][]*verdict // final answers of the exporters by batch id, nil for an exporter without one
	order []string              // ids of these batches, newest last
}

// maxTeeRecords bounds the number of batches that are remembered.
const maxTeeRecords = 1024

type verdict struct{ err error }

var (
	_ Exporter = (*tee)(nil)
	_ Flusher  = (*tee)(nil)
)

func (t *tee) add(ctx context.Context, s Setup, construct NewExporter) error {
	if construct == nil {
		return errors.New("constructor is nil")
	}
	exporter, err := construct(ctx, s)
	if err != nil {
		return err
	}
	if exporter == nil {
		return errors.New("constructor gave neither a value nor an error")
	}
	t.exporters = append(t.exporters, exporter)
	return nil
}

// Export sends the batch to the exporters that have not accepted it.
func (t *tee) Export(ctx context.Context, b *Batch) error {
	encoded := b.Bytes()
	known := t.recall(b.ID())
	verdicts := make([]*verdict, len(t.exporters))
	t.all(func(i int, exporter Exporter) {
		if known != nil && known[i] != nil {
			verdicts[i] = known[i]
			return
		}
		own := &Batch{id: b.id, attempt: b.attempt, raw: encoded}
		v := &verdict{t.guard(i, func() error { return exporter.Export(ctx, own) })}
		if err := own.malformed(); err != nil {
			v.err = fmt.Errorf("%s: %w", t.name(i), err)
		}
		verdicts[i] = v
		if !v.again() {
			t.remember(b.ID(), i, v.short())
		}
	})
	answer := t.answer(verdicts)
	if !(&verdict{answer}).again() {
		t.forget(b.ID())
	}
	return answer
}

// again reports whether the exporter wants the batch again.
func (v *verdict) again() bool { return v.err != nil && asPartial(v.err) == nil && !Final(v.err) }

// short returns the verdict without references to other memory.
func (v *verdict) short() *verdict {
	if v.err == nil {
		return v
	}
	if partial := asPartial(v.err); partial != nil {
		return &verdict{&partialError{partial.rejected, wire.Clip(partial.message)}}
	}
	return &verdict{wire.FromStatus(wire.ToStatus(v.err))}
}

// answer returns one error for the verdicts of the worst kind: retries, else refusals, else
// partial rejections. It returns nil if there is no such verdict.
func (t *tee) answer(verdicts []*verdict) error {
	var again, refused []error
	var messages []string
	delay, rejected := time.Duration(0), 0
	for i, v := range verdicts {
		partial := asPartial(v.err)
		switch {
		case v.err == nil:
		case partial != nil:
			rejected += min(partial.rejected, math.MaxInt32)
			messages = append(messages, t.name(i)+": "+partial.message)
		case v.again():
			again = append(again, v.err)
			delay = max(delay, wire.FromStatus(wire.ToStatus(v.err)).After)
		default:
			refused = append(refused, v.err)
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

// Shutdown shuts down all exporters.
func (t *tee) Shutdown(ctx context.Context) error {
	return t.each(func(exporter Exporter) error { return exporter.Shutdown(ctx) })
}

// each calls f for every exporter at once, and joins the errors.
func (t *tee) each(f func(Exporter) error) error {
	faults := make([]error, len(t.exporters))
	t.all(func(i int, exporter Exporter) {
		faults[i] = t.guard(i, func() error { return f(exporter) })
	})
	return errors.Join(faults...)
}

// all calls f for every exporter at once, and returns when all calls have returned.
func (t *tee) all(f func(i int, exporter Exporter)) {
	var calls sync.WaitGroup
	for i, exporter := range t.exporters {
		calls.Go(func() { f(i, exporter) })
	}
	calls.Wait()
}

// guard calls f and converts a panic to an error. f runs in a goroutine of its own, in
// which a panic would end the process.
func (t *tee) guard(i int, f func() error) error { return guard(t.log, t.name(i), f) }

// recall returns the final answers to a batch, or nil.
func (t *tee) recall(id string) []*verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.taken[id])
}

// remember stores the final answer of exporter i to a batch. If there are too many batches,
// it forgets the oldest batch.
func (t *tee) remember(id string, i int, v *verdict) {
	if id == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[id] == nil {
		t.taken[id] = make([]*verdict, len(t.exporters))
		t.order = append(t.order, id)
	}
	t.taken[id][i] = v
	if len(t.order) > maxTeeRecords {
		delete(t.taken, t.order[0])
		t.order = slices.Delete(t.order, 0, 1)
	}
}

// forget removes the answers to a batch that was answered finally.
func (t *tee) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, id)
	if i := slices.Index(t.order, id); i >= 0 {
		t.order = slices.Delete(t.order, i, i+1)
	}
}
