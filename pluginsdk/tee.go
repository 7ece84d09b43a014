package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/servetrace/servetrace/internal/wire"
)

// Tee is one exporter made of several, for one plugin with several back ends.
// Each batch goes to all of them at once, as a [Batch] of its own. A batch is
// delivered when every exporter has it, and the answer to the host is the worst
// of theirs:
//
//   - If one wants the batch again, that is the answer, after the longest rest
//     that any asked for ([RetryAfter]). When the batch comes again it goes to
//     those alone that had not taken it.
//   - Else, if one refuses the batch for good, that is the answer: the span
//     account counts it as rejected although others have it, because "delivered" has to
//     mean everywhere. The text names the exporter.
//   - Else, if some took it in part, the spans they rejected are summed up, at
//     most to the whole batch: they may be different ones.
//
// Who has taken a batch is remembered by its id, for the last 1,024 batches that
// some have and some do not, in this process: after a crash all get the batch
// again, as they do where the sender gives no id ([Batch.ID]). A back end must
// not mind a span that comes twice, as with any exporter.
//
// All exporters get the same [Setup], with one configuration document for all.
// They are built in order, and flushed and shut down at once. A back end that is
// down keeps batches waiting for all: where one must not hold up another, give
// each a plugin of its own.
func Tee(exporters ...NewExporter) NewExporter {
	return func(ctx context.Context, s Setup) (Exporter, error) {
		t := &tee{log: s.Log, taken: map[string]*teeRecord{}}
		if t.log == nil {
			t.log = slog.New(slog.DiscardHandler)
		}
		var faults []error
		if len(exporters) == 0 {
			faults = append(faults, errors.New("a Tee of no exporters"))
		}
		for i, construct := range exporters {
			err := t.add(ctx, s, construct)
			for _, one := range flatten(err) {
				faults = append(faults, fmt.Errorf("exporter %d of %d: %w", i+1, len(exporters), one))
			}
		}
		if len(faults) > 0 {
			return nil, errors.Join(append(faults, t.Shutdown(ctx))...)
		}
		return t, nil
	}
}

// tee is what Tee builds.
type tee struct {
	exporters []Exporter
	log       *slog.Logger

	mu    sync.Mutex
	taken map[string]*teeRecord // by batch id
	order []string              // of the ids, those that came last at the end
}

// maxTeeRecords bounds the batches that are remembered: some 100 bytes and a bit
// for each exporter.
const maxTeeRecords = 1024

// A teeRecord is what is known of one batch.
type teeRecord struct {
	// final has for each exporter its last word on the batch, nil if it has none
	// yet.
	final []*verdict
}

// A verdict is what an exporter made of a batch.
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

// Export sends the batch to all that have not taken it yet.
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
		v := &verdict{t.guard("export", func() error { return exporter.Export(ctx, own) })}
		if err := own.malformed(); err != nil {
			v.err = err
		}
		verdicts[i] = v
		if !v.again() {
			t.remember(b.ID(), i, v.short())
		}
	})
	answer := t.answer(verdicts)
	if answer == nil || !(&verdict{answer}).again() {
		t.forget(b.ID())
	}
	return answer
}

// again tells whether the exporter wants the batch again.
func (v *verdict) again() bool {
	return v.err != nil && asPartial(v.err) == nil && !wire.FromStatus(wire.ToStatus(v.err)).Final
}

// short is the verdict in a form that is kept: an error may hold on to much.
func (v *verdict) short() *verdict {
	if v.err == nil {
		return v
	}
	if partial := asPartial(v.err); partial != nil {
		return &verdict{&partialError{partial.rejected, wire.Clip(partial.message)}}
	}
	return &verdict{wire.FromStatus(wire.ToStatus(v.err))}
}

// answer is the worst of the verdicts.
func (t *tee) answer(verdicts []*verdict) error {
	var again, refused []error
	var messages []string
	rest, rejected := time.Duration(0), 0
	for i, v := range verdicts {
		partial := asPartial(v.err)
		switch {
		case v.err == nil:
		case partial != nil:
			rejected += min(partial.rejected, math.MaxInt32)
			messages = append(messages, t.name(i)+": "+partial.message)
		case v.again():
			again = append(again, fmt.Errorf("%s: %w", t.name(i), v.err))
			rest = max(rest, wire.FromStatus(wire.ToStatus(v.err)).After)
		default:
			refused = append(refused, fmt.Errorf("%s: %w", t.name(i), v.err))
		}
	}
	switch {
	case len(again) == 1: // one alone keeps its code
		return again[0]
	case len(again) > 0:
		return RetryAfter(errors.Join(again...), rest)
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

// Flush flushes all that are a Flusher.
func (t *tee) Flush(ctx context.Context) error {
	return t.each("flush", func(exporter Exporter) error {
		if flusher, ok := exporter.(Flusher); ok {
			return flusher.Flush(ctx)
		}
		return nil
	})
}

// Shutdown shuts all down.
func (t *tee) Shutdown(ctx context.Context) error {
	return t.each("shut down", func(exporter Exporter) error { return exporter.Shutdown(ctx) })
}

// each does one thing to all exporters at once, and joins their errors.
func (t *tee) each(what string, f func(Exporter) error) error {
	faults := make([]error, len(t.exporters))
	t.all(func(i int, exporter Exporter) {
		if err := t.guard(what, func() error { return f(exporter) }); err != nil {
			faults[i] = fmt.Errorf("%s: %w", t.name(i), err)
		}
	})
	return errors.Join(faults...)
}

// all calls f for every exporter, at once, and returns when each call did.
func (t *tee) all(f func(i int, exporter Exporter)) {
	var calls sync.WaitGroup
	for i, exporter := range t.exporters {
		calls.Go(func() { f(i, exporter) })
	}
	calls.Wait()
}

// guard keeps one exporter's panic from the others' calls, and from the
// process: it would come in a goroutine that nobody else looks after.
func (t *tee) guard(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			t.log.Error(what+": panic", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = &wire.Error{Code: wire.CodePanic, Final: true, Err: fmt.Errorf("panic: %v", r)}
		}
	}()
	return f()
}

// recall gives the verdicts on a batch that are final, nil if none is known.
func (t *tee) recall(id string) []*verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	record := t.taken[id]
	if record == nil {
		return nil
	}
	return slices.Clone(record.final)
}

// remember keeps exporter i's last word on a batch, and forgets the oldest
// batch where there are too many.
func (t *tee) remember(id string, i int, v *verdict) {
	if id == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	record := t.taken[id]
	if record == nil {
		record = &teeRecord{final: make([]*verdict, len(t.exporters))}
		t.taken[id] = record
		t.order = append(t.order, id)
	}
	record.final[i] = v
	if len(t.order) > maxTeeRecords {
		delete(t.taken, t.order[0])
		t.order = slices.Delete(t.order, 0, 1)
	}
}

// forget drops what is known of a batch that has been answered for good.
func (t *tee) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.taken[id]; !known {
		return
	}
	delete(t.taken, id)
	if i := slices.Index(t.order, id); i >= 0 {
		t.order = slices.Delete(t.order, i, i+1)
	}
}

// flatten gives the errors that errors.Join has joined, or err alone.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if list := members(err); list != nil {
		return list
	}
	return []error{err}
}
