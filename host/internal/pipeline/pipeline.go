// Package pipeline is the way of spans from OnEnd to the senders of the plugins, within
// one bound in bytes.
//
//  1. Add puts a span on a sharded list (intake). It never blocks and does not allocate.
//  2. The encoder, in Run, makes OTLP bytes of the spans and seals them into batches.
//     Spans of other programs come as bytes: Consume merges them into batches (consumer).
//  3. Each exporter has a Queue with references to the batches (backlog), and a ledger
//     that balances to the span. So has each processor, whose results go on to the next
//     queues (processors.go). One mutex guards all queues, so that Stats is one snapshot.
//  4. A sender has a Lane for its connection. It takes items from the queue and settles
//     each with the plugin's answer. At the end of the connection, the lane judges the
//     items that have no answer (poison.go).
//  5. At the bound, the queue that holds most loses its oldest batch. A span is refused
//     for lack of memory only if the encoder cannot keep up.
//
// The package does not know plugins, processes or their states: package supervise calls
// it, by the methods of Queue and Lane. It makes no calls by gRPC, and only lends
// buffers to gRPC (lease.go).
//
// Open this file first, then intake.go, encode.go, consume.go, item.go, delivery.go,
// queue.go, lane.go and processors.go.
package pipeline

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/servetrace/servetrace/internal/otlpwire/sdkspan"
)

// Settings are the bounds of a Pipeline. Package host documents them, with defaults.
type Settings struct {
	QueueBytes   int64
	MaxSpanBytes int
	BatchAge     time.Duration
	BatchSpans   int
	BatchBytes   int
	MaxAge       time.Duration
	SpoolDir     string // empty: no spool
	SpoolBytes   int64
	Recent       *Recent // nil: no batches are kept
}

// MostBatchSpans bounds Settings.BatchSpans.
const MostBatchSpans = 1 << 16

// These are the names of the variables that set the bounds, for log lines.
const (
	EnvQueueBytes   = "SERVE_TRACING_QUEUE_BYTES"
	EnvMaxSpanBytes = "SERVE_TRACING_MAX_SPAN_BYTES"
	EnvSpoolBytes   = "SERVE_TRACING_SPOOL_BYTES"
)

// Pipeline takes spans from OnEnd to the senders: intake, encoder, one queue for each
// exporter, and the shared account of bytes. Safe for concurrent use.
type Pipeline struct {
	// Instance identifies this process. It is the first half of the id of every batch.
	Instance string
	// Spool has the batches on disk.
	Spool *Spool

	cfg      Settings
	log      *slog.Logger
	mem      *memory
	intake   *intake
	encoder  *encoder
	consumer consumer

	// mu guards all queues and ledgers. It is locked once for a batch, never for a single
	// span. Lock order: encoder.mu, mu, the shards of the intake.
	mu sync.Mutex
	// settled is signalled when an item has left a queue.
	settled *sync.Cond
	chain   chain
	seq     uint64  // sequence number of the last sealed batch
	senders senders // counts of the requests that are in memory only
}

// New returns a Pipeline without queues.
func New(cfg Settings, log *slog.Logger) *Pipeline {
	p := &Pipeline{Instance: newInstance(), cfg: cfg, log: log, mem: newMemory(cfg.QueueBytes)}
	p.settled = sync.NewCond(&p.mu)
	p.intake = newIntake(&p.cfg, p.mem)
	p.encoder = &encoder{p: p}
	p.consumer.p = p
	p.senders = newSenders(p.mem.backlog)
	p.Spool = newSpool(p)
	return p
}

// newInstance returns a random id of 16 hexadecimal digits.
func newInstance() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	return hex.EncodeToString(id[:])
}

// Run encodes the spans until stop is closed.
func (p *Pipeline) Run(stop <-chan struct{}) { p.encoder.run(stop) }

// Add accepts or refuses a span. It never blocks, and does not allocate once the lists
// have grown to their usual length.
func (p *Pipeline) Add(s sdktrace.ReadOnlySpan, g sdkspan.Gist) { p.intake.add(s, g) }

// Close refuses all further spans and requests.
func (p *Pipeline) Close() {
	p.intake.close()
	p.encoder.mu.Lock()
	defer p.encoder.mu.Unlock()
	p.consumer.closed = true
}

// Flush encodes and seals all spans that have ended. It returns the sequence number of
// the last sealed batch.
func (p *Pipeline) Flush() (seq uint64) {
	p.encoder.cycle(true)
	return p.Sealed()
}

// Sealed returns the sequence number of the last sealed batch.
func (p *Pipeline) Sealed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// Join adds the queue of an exporter. The exporter gets all batches that are sealed
// from now on. own are the queues of the processors that run for this exporter only, in
// order. The caller must call LogNotes when it holds no mutex.
func (p *Pipeline) Join(q *Queue, own ...*Queue) {
	p.freeze()
	defer p.unfreeze()
	p.chain.join(q, own)
}

// Leave removes the queue of an exporter. The queue gets no batch that is sealed later.
// The caller must call LogNotes when it holds no mutex.
func (p *Pipeline) Leave(q *Queue) {
	p.freeze()
	defer p.unfreeze()
	p.chain.leave(q, p.seq)
}

// SetProcessors replaces the processors that all exporters share, in one step. A
// processor that is no longer in the list still processes its batches and passes them
// on. The caller must call LogNotes when it holds no mutex.
func (p *Pipeline) SetProcessors(list []*Queue) {
	p.freeze()
	defer p.unfreeze()
	p.chain.setProcessors(list)
}

// freeze puts all accepted spans on the queues, and stops the acceptance of spans until
// unfreeze. So the list of queues changes between two spans.
func (p *Pipeline) freeze() {
	p.encoder.mu.Lock()
	p.encoder.cycleLocked(true)
	p.mu.Lock()
	p.intake.lock()
}

func (p *Pipeline) unfreeze() {
	p.intake.unlock()
	p.mu.Unlock()
	p.encoder.mu.Unlock()
}

// enqueue puts a sealed batch on the queues of the first processor, or of all
// exporters. Then it enforces the bounds of the memory and of the spool. It releases
// the caller's reference. The caller holds the encoder's mutex.
func (p *Pipeline) enqueue(b *batch, o *origin, spans int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	now := time.Now()
	first := p.chain.next(nil, nil, p.seq)
	o.receipt.expect(uint64(spans * len(first)))
	o.open = len(first)
	if len(first) == 0 {
		release(o.loads)
	}
	for _, q := range first {
		b.Retain()
		q.putLocked(&Item{Batch: b, delivery: &delivery{origin: o, left: spans}, spans: spans, seq: p.seq, sealed: now, arrived: now})
	}
	p.cfg.Recent.note(&p.chain, now, b.data, first)
	b.Release()
	p.makeRoomLocked(now)
}

// makeRoomLocked enforces the bounds. If the batches need too much memory, the queue
// that holds the most bytes first unloads batches that are on disk, and then drops its
// oldest batch. If the files are too large, the queue with the most bytes on disk drops
// its oldest batch there. Batches in flight stay.
func (p *Pipeline) makeRoomLocked(now time.Time) {
	held := func(q *Queue) int64 { return q.ledger.held }
	for p.mem.encoded.Load() > p.mem.backlog {
		if q := largest(p.chain.all, held, (*backlog).unloadable); q != nil {
			p.Spool.unloadLocked(q, q.items.unloadable())
			continue
		}
		q := largest(p.chain.all, held, (*backlog).oldest)
		if q == nil {
			break
		}
		q.dropOldestLocked(now, reasonQueueFull)
	}
	for p.Spool.over() {
		q := largest(p.chain.all, func(q *Queue) int64 { return q.ledger.stored }, (*backlog).oldestStored)
		if q == nil {
			return
		}
		it := q.items.oldestStored()
		q.items.remove(it)
		q.dropLocked(now, it, reasonQueueFull)
	}
}

// largest returns the queue with the largest size. It ignores queues for which the
// function item returns nil, and returns nil if there is no other queue.
func largest(list []*Queue, size func(*Queue) int64, item func(*backlog) *Item) (largest *Queue) {
	for _, q := range list {
		if (largest == nil || size(q) > size(largest)) && item(&q.items) != nil {
			largest = q
		}
	}
	return largest
}

// dropEverywhere counts accepted spans that cannot be put into a batch. They count as
// accepted and dropped in each queue that a new batch would be put on.
func (p *Pipeline) dropEverywhere(spans uint64, why reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, q := range p.chain.next(nil, nil, p.seq+1) {
		q.ledger.accepted += spans
		q.ledger.dropped[why] += spans
		q.failures.Dropped(now, spans, why.String())
	}
}

// shareLocked returns the number of bytes that each plugin may have in flight, or that
// gRPC may hold for it. A plugin that has left the list has a share until its
// connections are closed.
func (p *Pipeline) shareLocked() int64 {
	plugins := 0
	for _, q := range p.chain.all {
		if !q.stage.gone || len(q.lanes) > 0 {
			plugins++
		}
	}
	return p.mem.backlog / int64(max(1, plugins))
}

// LogNotes writes the log lines that were noted under a mutex, and does the pending
// work of the spool. The caller must hold no mutex.
func (p *Pipeline) LogNotes() {
	p.Spool.work()
	p.mu.Lock()
	all := p.chain.all
	p.mu.Unlock()
	for _, q := range all {
		q.failures.Write()
	}
}
