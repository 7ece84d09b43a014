package pipeline

import (
	"context"
	"slices"
)

// mostTaps bounds the number of taps of a queue, and tapBytes the bytes that wait in a
// tap for its reader. These bytes are not part of the memory of the queues.
const (
	mostTaps = 4
	tapBytes = 4 << 20
)

// Tap has copies of the batches that a queue gets. The pipeline's mutex guards its fields
// that change.
type Tap struct {
	q     *Queue
	ready chan struct{} // gets a value when a batch is added; capacity 1

	waiting []Tapped
	bytes   int
	missed  uint64
}

// Tapped is a batch of a Tap.
type Tapped struct {
	Data  []byte // an ExportTraceServiceRequest
	Spans int
}

// NewTap returns a Tap, which copies the batches that the queue gets from now on. It
// returns nil if the queue already has mostTaps. The caller must call Close.
func NewTap(q *Queue) *Tap {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	if len(q.taps) == mostTaps {
		return nil
	}
	t := &Tap{q: q, ready: make(chan struct{}, 1)}
	q.taps = append(q.taps, t)
	return t
}

// addLocked copies the batch of an item. If the tap is full, or the bytes are only on
// disk, it counts the spans as missed.
func (t *Tap) addLocked(it *Item) {
	if it.Batch == nil || t.bytes+len(it.Batch.data) > tapBytes {
		t.missed += uint64(it.Left())
		return
	}
	t.waiting = append(t.waiting, Tapped{Data: slices.Clone(it.Batch.data), Spans: it.Left()})
	t.bytes += len(it.Batch.data)
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// Next waits for batches and returns them. It returns an empty list when ctx has ended.
func (t *Tap) Next(ctx context.Context) (list []Tapped) {
	for len(list) == 0 && ctx.Err() == nil {
		select {
		case <-t.ready: // the batches may have been returned already
			list = t.take()
		case <-ctx.Done():
		}
	}
	return list
}

func (t *Tap) take() []Tapped {
	t.q.p.mu.Lock()
	defer t.q.p.mu.Unlock()
	list := t.waiting
	t.waiting, t.bytes = nil, 0
	return list
}

// Close removes the tap. It returns the number of spans that the reader has missed.
func (t *Tap) Close() (missed uint64) {
	t.q.p.mu.Lock()
	defer t.q.p.mu.Unlock()
	t.q.taps = slices.DeleteFunc(t.q.taps, func(other *Tap) bool { return other == t })
	for _, batch := range t.waiting {
		t.missed += uint64(batch.Spans)
	}
	return t.missed
}
