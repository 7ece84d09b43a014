package pipeline

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/internal/otlpwire"
	"github.com/servetrace/servetrace/internal/wire"
)

// A processor has a queue as an exporter has. When the processor has answered, its item
// leaves this queue, and an item with the result is put on the next queues (chain.go).
// The new item keeps the id, the place in the order of sealing, and the time of sealing.
// So Flush and Shutdown wait for the whole way.
//
// A processor that fails closed drops the items that it cannot process. A processor that
// fails open bypasses them: an item goes on unprocessed, and is counted with the reason.

// NewProcessor returns an empty queue for the processor called name. The caller passes
// the queue to SetProcessors or Join. A patience above zero makes the processor fail
// open: it is the longest wait of a batch in the queue.
func NewProcessor(p *Pipeline, name string, f *failures.Log, patience time.Duration) *Queue {
	q := NewQueue(p, name, f)
	q.stage.processor, q.stage.patience = true, patience
	return q
}

// MaxResultBytes bounds the answer of a processor, and the batch that the answer makes.
const MaxResultBytes = 16 << 20

// MostResultBytes returns MaxResultBytes, or the memory for batches if that is less. A
// larger result would push out all other batches.
func (l *Lane) MostResultBytes() int { return int(min(MaxResultBytes, l.q.p.mem.backlog)) }

// ReadResult reads the response of a processor to an item in flight. It returns an error
// if the result cannot be used. It trusts the bytes of the item, which come from the
// encoder or have passed a check.
func (l *Lane) ReadResult(it *Item, response []byte) (ans Answer, err error) {
	ans.Data, ans.Spans, ans.Changed, err = ReadResult(it.Batch.data, response, l.MostResultBytes(), l.q.p.mem.arena)
	if err == nil && ans.Changed && ans.Spans > it.Left() {
		err = fmt.Errorf("it has %d spans, and the batch had %d", ans.Spans, it.Left())
	}
	return ans, err
}

// ReadResult returns the batch in the response of a processor, and the number of its
// spans. If the batch is unchanged, all results are zero. A malformed result, or a
// result of more than most bytes, is an error. The fields that a patch keeps are not
// checked again. alloc returns an empty buffer with the given capacity for a patched
// batch, or nil.
func ReadResult(batch, response []byte, most int, alloc func(int) []byte) (result []byte, spans int, changed bool, err error) {
	field, content, err := wire.ReadProcess(response, wire.ResponsePatch, wire.ResponseBatch)
	if err != nil || field == 0 {
		return nil, 0, false, err
	}
	if result = content; field == wire.ResponsePatch {
		// The capacity suffices, because each splice in the patch is longer than the bytes
		// that it inserts.
		if result, err = otlpwire.ApplyPatch(alloc(len(batch)+len(content)), batch, content); err != nil {
			return nil, 0, false, err
		}
	}
	if len(result) > most {
		return nil, 0, false, fmt.Errorf("it has %d bytes, and at most %d are allowed", len(result), most)
	}
	if field == wire.ResponsePatch {
		spans, err = otlpwire.CheckPatched(batch, content, result)
	} else {
		spans, _, err = otlpwire.Check(result, math.MaxInt)
	}
	return result, spans, true, err
}

// processedLocked counts an item that the processor q has answered, and puts the result
// on the next queues. Spans that are in the item and not in the result count as
// filtered.
func processedLocked(now time.Time, q *Queue, it *Item, ans Answer) {
	spans, b := it.Left(), it.Batch
	if ans.Changed {
		spans, b = ans.Spans, newBatch(q.p.mem, ans.Data)
		defer b.Release()
	}
	missing := uint64(it.Left() - spans)
	if rest := q.ledger.filterEach(ans.Filtered, missing); rest > 0 {
		q.ledger.filter(q.name, rest)
	}
	if ans.Unread != "" {
		q.failures.Failed(now, CodeUnread, "a part of the processor's answer cannot be read", ans.Unread)
	} else {
		q.failures.Delivered(now)
	}
	q.ledger.delivered += uint64(spans)
	if spans == 0 {
		q.doneLocked(it, Outcome{Filtered: missing})
		return
	}
	it.delivery.origin.receipt.add(Outcome{Filtered: missing})
	passLocked(now, q, it, &Item{Batch: b, spans: spans, part: it.part, from: it.from})
	q.doneLocked(it, Outcome{})
	q.p.makeRoomLocked(now) // the result may need more memory than the item did
}

// bypassLocked passes an item on as if the processor had not been there, because it
// fails open. The item must not be in the backlog or in flight. It returns false if the
// remaining spans cannot be cut out of the batch.
func bypassLocked(now time.Time, q *Queue, it *Item, why reason) bool {
	next := &Item{Batch: it.Batch, spans: it.Left(), part: it.part, from: it.from + it.cut}
	if it.cut > 0 {
		data, _, err := otlpwire.Cut(it.Batch.data, it.cut, math.MaxInt, math.MaxInt)
		if err != nil { // cannot happen: the bytes were checked before
			q.failures.Note(slog.LevelError, "cut a batch", "error", err)
			return false
		}
		next.Batch, next.part = newBatch(q.p.mem, data), fmt.Sprintf("%s.%d", it.part, it.parts+1)
		defer next.Batch.Release()
	}
	q.ledger.bypassed[why] += uint64(next.spans)
	q.failures.Failed(now, why.String(), "spans go on without the processor", "reason "+why.String())
	passLocked(now, q, it, next)
	q.doneLocked(it, Outcome{})
	return true
}

// passLocked puts a copy of next on each queue after the processor q. next has the
// spans of the item it that go on.
func passLocked(now time.Time, q *Queue, it, next *Item) {
	origin := it.delivery.origin
	queues := q.p.chain.next(append(slices.Clip(it.delivery.passed), q), q.stage.exporter, it.seq)
	origin.receipt.pass(uint64(next.spans), len(queues))
	if q.stage.exporter == nil {
		q.p.cfg.Recent.note(&q.p.chain, now, next.Batch.data, queues)
	}
	it.delivery.passLocked(q, it.Left(), next.spans, queues)
	for _, to := range queues {
		one := *next
		one.delivery, one.seq, one.sealed, one.arrived = it.delivery.next[to], it.seq, it.sealed, now
		one.Batch.Retain()
		to.putLocked(&one)
	}
}
