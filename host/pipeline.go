package host

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// pipeline is the way of a span to the senders: intake, encoder, one queue for each
// exporter, and the account of bytes that they share. Safe for concurrent use.
type pipeline struct {
	cfg     *Config
	log     *slog.Logger
	mem     *memory
	intake  *intake
	encoder *encoder

	// mu guards all queues and ledgers. It is taken for a batch, never for a span.
	// Lock order: encoder.mu, mu, the shards of the intake.
	mu sync.Mutex
	// queues are in the order of the list; gone have left it and may still have
	// batches. The slices are replaced, never changed.
	queues, gone []*queue
	seq          uint64 // batches sealed so far
}

func newPipeline(cfg *Config, log *slog.Logger) *pipeline {
	p := &pipeline{cfg: cfg, log: log, mem: newMemory(cfg.QueueBytes)}
	p.intake = newIntake(cfg, p.mem)
	p.encoder = &encoder{p: p}
	return p
}

// enqueue puts a sealed batch on every queue and makes room. It takes the caller's
// reference. The encoder's mutex is held.
func (p *pipeline) enqueue(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	now := time.Now()
	for _, q := range p.queues {
		b.retain()
		q.putLocked(b, p.seq, now)
	}
	b.release()
	p.makeRoomLocked(now)
}

// sealed returns the number of batches sealed so far.
func (p *pipeline) sealed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// makeRoomLocked keeps the encoded batches within their share: the queue that holds
// most loses its oldest batch, until there is room. Batches in flight stay.
func (p *pipeline) makeRoomLocked(now time.Time) {
	for p.mem.encoded.Load() > p.mem.backlog {
		var fattest *queue
		for _, q := range p.allLocked() {
			if !q.items.empty() && (fattest == nil || q.books.held > fattest.books.held) {
				fattest = q
			}
		}
		if fattest == nil {
			return
		}
		fattest.dropOldestLocked(now, reasonQueueFull)
	}
}

// dropEverywhere counts spans that were accepted and never reached a batch.
func (p *pipeline) dropEverywhere(spans uint64, why reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, q := range p.queues {
		q.books.dropped[why] += spans
		q.failures.dropped(now, spans, why)
	}
}

func (p *pipeline) allLocked() []*queue {
	if len(p.gone) == 0 {
		return p.queues
	}
	return slices.Concat(p.queues, p.gone)
}

// shareLocked returns the bytes that each exporter may have in flight, or with gRPC.
// An exporter that has left the list has a share until its connections are closed.
func (p *pipeline) shareLocked() int64 {
	sharers := len(p.queues)
	for _, q := range p.gone {
		if len(q.lanes) > 0 {
			sharers++
		}
	}
	return p.mem.backlog / int64(max(1, sharers))
}

func (p *pipeline) share() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shareLocked()
}

// logNotes logs the notes of all queues.
func (p *pipeline) logNotes() {
	p.mu.Lock()
	all := p.allLocked()
	p.mu.Unlock()
	for _, q := range all {
		q.notes.write()
	}
}

// freeze stops everything that moves spans until unfreeze, so that the list of queues
// can change between two spans. All spans that Stats may have shown as accepted are
// in the queues then: it returns their number. Further spans are for the queues that
// there are at unfreeze. The caller logs the notes afterwards.
func (p *pipeline) freeze() (arrived uint64) {
	p.encoder.mu.Lock()
	p.encoder.cycleLocked(true)
	p.mu.Lock()
	p.intake.lock()
	return p.statsLocked(&Stats{Refused: map[string]uint64{}})
}

func (p *pipeline) unfreeze() {
	p.intake.unlock()
	p.mu.Unlock()
	p.encoder.mu.Unlock()
}

// stats takes one snapshot of the intake and all queues: every span that ended before
// is in it, at exactly one place. The ledgers are in the order of queues and gone.
func (p *pipeline) stats() Stats {
	p.encoder.mu.Lock() // no span is between a list and the queues
	defer p.encoder.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.intake.lock()
	defer p.intake.unlock()
	s := Stats{Refused: map[string]uint64{}, Bytes: p.mem.used.Load(), LimitBytes: p.mem.limit}
	arrived := p.statsLocked(&s)
	for _, q := range p.allLocked() {
		s.Exporters = append(s.Exporters, q.statsLocked(arrived, s.Accepted-arrived))
	}
	return s
}

// statsLocked counts the spans that came in, and returns the number of the spans that
// have reached the queues. All locks are held.
func (p *pipeline) statsLocked(s *Stats) (arrived uint64) {
	waiting := p.intake.statsLocked(s)
	return s.Accepted - waiting - uint64(p.encoder.enc.Spans())
}
