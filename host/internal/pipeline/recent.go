package pipeline

import (
	"slices"
	"sync"
	"time"
)

// Recent keeps copies of the batches that were sealed last, to show them to operators.
// It holds at most its bound of bytes. Per second it copies at most an eighth of the
// bound, plus one batch. Safe for concurrent use.
type Recent struct {
	most int // bytes

	mu      sync.Mutex
	batches [][]byte
	bytes   int
	credit  int // number of bytes that may be copied now; below zero after a large batch
	filled  time.Time
}

// NewRecent returns a Recent that holds at most so many bytes. With 0 it holds nothing.
func NewRecent(bytes int) *Recent { return &Recent{most: bytes} }

// add copies a batch, unless the batch is larger than the bound or too much was copied
// lately.
func (r *Recent) add(now time.Time, batch []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(batch) > r.most {
		return
	}
	rate := r.most / 8
	r.credit = int(min(int64(rate), int64(r.credit)+int64(now.Sub(r.filled).Seconds()*float64(rate))))
	r.filled = now
	if r.credit <= 0 {
		return
	}
	r.credit -= len(batch)
	for r.bytes += len(batch); r.bytes > r.most; r.batches = r.batches[1:] {
		r.bytes -= len(r.batches[0])
	}
	r.batches = append(slices.Clip(r.batches), slices.Clone(batch))
}

// Batches returns the copies, oldest first. The caller must not change them.
func (r *Recent) Batches() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}

// note keeps a copy of a batch that has passed all processors that the exporters share.
// next are the queues that get the batch. The caller holds the pipeline's mutex.
func (r *Recent) note(c *chain, now time.Time, batch []byte, next []*Queue) {
	if r != nil && len(next) > 0 && !slices.Contains(c.processors, next[0]) {
		r.add(now, batch)
	}
}
