package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/servetrace/servetrace/host/internal/spool"
)

// With a spool, the bytes of each batch are in a file before the batch is put on the
// queues, and before Consume and Deliver return. Therefore:
//
//   - The spool notes each outcome. It removes a file when no exporter needs a batch of
//     the file any more.
//   - At the bound of the memory, waiting items give up their bytes (unload). A lane reads
//     the bytes again when the item is next.
//   - At the bound of the spool, the queue with the most bytes in the spool loses its
//     oldest batch there.
//   - Recover puts the batches of processes that have ended on the queues of the exporters
//     that are not done with them, before all other batches.
//
// A batch that could not be written is in memory only, as without a spool.

// stored reports whether the batch of the item is on disk, in the spool.
func (it *Item) stored() bool { return it.delivery.origin.records != nil }

// mostRecovered separates sequence numbers. A process with a spool gives its own
// batches numbers above it, and the older batches of earlier processes numbers below
// it.
const mostRecovered = 1 << 32

// unloadedBytes is the number of bytes that the memory account counts for an item that
// has its bytes only on disk.
const unloadedBytes = 384

// Spool writes and reads the batches on disk, if the settings have a folder for them. The
// pipeline's mutex guards its fields.
type Spool struct {
	p       *Pipeline
	store   *spool.Store // nil if there is no spool
	senders senders      // bounds the requests that are on disk
}

func newSpool(p *Pipeline) *Spool {
	s := &Spool{p: p}
	if p.cfg.SpoolDir != "" {
		s.store = spool.New(p.cfg.SpoolDir, p.Instance, p.cfg.SpoolBytes, p.log)
		s.senders = newSenders(p.cfg.SpoolBytes)
		p.seq = mostRecovered
	}
	return s
}

// writable reports whether append would try to write. It is false without a spool, and
// for a while after a failed write.
func (s *Spool) writable() bool { return s.store != nil && s.store.Writable() }

// miss counts a request that is in memory only, because the spool was not writable.
func (s *Spool) miss() {
	if s.store != nil {
		s.store.Miss()
	}
}

// over reports whether the spool has more than its bound.
func (s *Spool) over() bool { return s.store != nil && s.store.Over() }

func (s *Spool) stats() (none spool.Stats) {
	if s.store == nil {
		return none
	}
	return s.store.Stats()
}

// work writes the notes about settled spans, and removes files that are no longer
// needed. The caller must hold no mutex.
func (s *Spool) work() {
	if s.store != nil {
		s.store.Work()
	}
}

// Close closes the files. Waiting batches stay in them.
func (s *Spool) Close() {
	if s.store != nil {
		s.store.Close()
	}
}

// append writes a batch, or a part of a batch, to the spool. It returns nil if the data
// cannot be written, or if there is no exporter. The caller holds the encoder's mutex.
func (s *Spool) append(o *origin, spans int, data []byte) *spool.Record {
	if s.store == nil {
		return nil
	}
	var names []string
	s.p.mu.Lock()
	for _, q := range s.p.chain.queues {
		names = append(names, q.name)
	}
	s.p.mu.Unlock()
	if names == nil {
		return nil
	}
	return s.store.Append(spool.Batch{Number: o.number, Spans: spans, Sealed: time.Now(), Exporters: names}, data)
}

// settleLocked notes on disk that the exporter has settled the spans of an item.
func (s *Spool) settleLocked(q *Queue, it *Item) {
	if !it.stored() {
		return
	}
	origin := it.delivery.origin
	last := it.delivery.left == 0
	if last {
		q.ledger.stored -= origin.bytes
	}
	s.store.Settle(origin.records, origin.number, q.name, it.from+it.cut, it.Left(), last)
}

// unloadable reports whether the item has its bytes both in memory and on disk. Parts
// of a batch have their bytes in memory only.
func (it *Item) unloadable() bool { return it.Batch != nil && it.part == "" && it.stored() }

// unloadLocked frees the memory of an unloadable item that waits. Its bytes stay on
// disk.
func (s *Spool) unloadLocked(q *Queue, it *Item) {
	q.ledger.held += unloadedBytes - it.Batch.Size()
	s.p.mem.chargeBatch(unloadedBytes)
	it.Batch.Release()
	it.Batch = nil
}

// loadLocked reads the bytes of an item that waits from disk. It releases the mutex
// meanwhile. If the bytes cannot be read, it drops the item.
func (s *Spool) loadLocked(ctx context.Context, q *Queue, it *Item) {
	it.delivery.loading = true
	s.p.mu.Unlock()
	data, err := s.store.Read(ctx, it.delivery.origin.records)
	s.p.mu.Lock()
	it.delivery.loading = false
	q.changed.Broadcast()
	switch {
	case it.delivery.gone: // the item was dropped meanwhile, because it was too old or at a bound
	case err == nil:
		it.Batch = newBatch(s.p.mem, data)
		s.p.mem.chargeBatch(-unloadedBytes)
		q.ledger.held += it.Batch.Size() - unloadedBytes
	case ctx.Err() == nil:
		q.failures.Note(slog.LevelError, "a batch of the spool cannot be read", "batch", it.ID(), "spans", it.Left(), "error", err)
		q.items.remove(it)
		q.dropLocked(time.Now(), it, reasonSpool)
	}
}

// Keep leaves the batches of a queue that are on disk to the next process, and returns
// the number of their spans. No item may be in flight.
func (s *Spool) Keep(q *Queue) (spans int) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for it := q.items.oldestStored(); it != nil; it = q.items.oldestStored() {
		spans += it.Left()
		q.items.remove(it)
		release(it.delivery.origin.loads)
		it.delivery.origin.receipt.add(Outcome{Spooled: uint64(it.Left())})
		q.ledger.remove(it)
		free(s.p.mem, it)
	}
	q.ledger.spooled += uint64(spans)
	q.p.settled.Broadcast()
	return spans
}

// HasAll reports whether the queue has no batch that is only in memory.
func (s *Spool) HasAll(q *Queue) bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for it := range q.inFlight {
		if !it.stored() {
			return false
		}
	}
	return q.items.allStored()
}

// recoverTimeout bounds the time to read the batches of earlier processes, while the
// plugins wait.
const recoverTimeout = time.Minute

// Recover takes the batches of earlier processes from the spool. It blocks while it reads
// their files, or until ctx ends.
func (s *Spool) Recover(ctx context.Context) {
	if s.store == nil {
		return
	}
	defer s.p.LogNotes()
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	found, err := s.store.Adopt(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		s.p.log.Error("the spool cannot be read: batches of earlier processes stay there", "dir", s.p.cfg.SpoolDir, "error", err)
	}
	spans, unknown := s.enqueue(found)
	if spans > 0 {
		s.p.log.Info("batches of earlier processes are in the spool and are sent now", "batches", len(found), "spans", spans)
	}
	for name, n := range unknown {
		s.p.log.Warn("the spool has spans for a plugin that is no longer in the list: they are dropped", "plugin", name, "spans", n)
	}
}

// enqueue puts batches of earlier processes on the queues, before all other batches. It
// returns the number of their spans, counted once for each exporter. unknown has the
// number of spans for each exporter that is no longer in the list.
func (s *Spool) enqueue(found []spool.Found) (spans int, unknown map[string]int) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	unknown = map[string]int{}
	items := map[*Queue][]*Item{}
	for i, f := range found {
		o := &origin{instance: f.Instance, number: f.Number}
		for _, rec := range f.Records {
			o.add(rec)
		}
		for name, done := range f.Settled {
			left := f.Spans - done
			at := slices.IndexFunc(p.chain.queues, func(q *Queue) bool { return q.name == name })
			if at < 0 {
				unknown[name] += left
				s.store.Settle(o.records, o.number, name, done, left, true)
				continue
			}
			q := p.chain.queues[at]
			it := recovered(f, o, done, now)
			it.seq = uint64(i)
			items[q] = append(items[q], it)
			o.open++
			p.mem.chargeBatch(unloadedBytes)
			q.ledger.add(it)
			q.ledger.recovered += uint64(left)
			spans += left
		}
		// A batch counts against the bound of requests only if every exporter still needs it,
		// as in the process that accepted its requests.
		if o.open > 0 && o.open == len(p.chain.queues) {
			o.loads = []*load{{senders: &s.senders, bytes: o.bytes}}
			s.senders.add(o.loads[0])
		}
	}
	for q, list := range items {
		q.items.prepend(list)
		q.expireLocked(now)
		q.armLocked(now)
		q.changed.Broadcast()
	}
	p.makeRoomLocked(now)
	return spans, unknown
}

// recovered returns an item for a batch of an earlier process, in which the exporter
// has settled the first done spans.
func recovered(f spool.Found, o *origin, done int, now time.Time) *Item {
	it := &Item{delivery: &delivery{origin: o, left: f.Spans - done}, spans: f.Spans, cut: done, sealed: f.Sealed}
	if it.sealed.After(now) { // the clock was set back
		it.sealed = now
	}
	if done > 0 {
		it.parts = 1 // the earlier process may have sent part 1, so the next part is part 2
	}
	return it
}
