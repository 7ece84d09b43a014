package pipeline

import (
	"slices"

	"github.com/servetrace/servetrace/host/internal/spool"
)

// Stats is one snapshot of the intake and all queues. It counts every span that ended
// before it in exactly one place. Package host documents the counts.
type Stats struct {
	Ended, Accepted   uint64
	Refused           map[string]uint64
	PushedBack        uint64
	Bytes, LimitBytes int64
	Spool             spool.Stats // zero if there is no spool
	Queues            map[*Queue]QueueStats
}

// Stats returns a snapshot. It waits for a running encoding cycle, which is short, and
// blocks Add while it reads some counters.
func (p *Pipeline) Stats() Stats {
	p.encoder.mu.Lock() // while mu is held, no span moves from a list to the queues
	defer p.encoder.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.intake.lock()
	defer p.intake.unlock()
	s := Stats{
		Refused: map[string]uint64{}, Bytes: p.mem.used.Load(), LimitBytes: p.mem.limit,
		Queues: map[*Queue]QueueStats{},
	}
	s.Spool = p.Spool.stats()
	s.PushedBack = p.consumer.pushedBack
	p.consumer.statsLocked(&s)
	// These are accepted spans that no queue has yet.
	undrained := p.intake.statsLocked(&s) + uint64(p.encoder.enc.Spans()) + uint64(p.consumer.spans)
	first := p.chain.next(nil, nil, p.seq+1)
	for _, q := range p.chain.all {
		n := undrained
		if !slices.Contains(first, q) {
			n = 0
		}
		s.Queues[q] = q.statsLocked(n)
	}
	return s
}
