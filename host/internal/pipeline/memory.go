package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"
)

// These are parts of Settings.QueueBytes. Encoded batches stay below backlogShare, so
// that the host can accept spans even if no exporter delivers. The last urgentShare is
// for spans with error status.
const (
	backlogShare = 5.0 / 8
	urgentShare  = 1.0 / 16
)

// memory is the account of bytes. An ended span counts with its estimated size, and an
// encoded batch with the capacity of its buffer. Batches that gRPC still holds after a
// failed call count until their connection is closed. Safe for concurrent use.
//
// It does not count constant amounts: the encoder's buffer, the arenas kept for reuse
// (spareArenas), and gRPC's own buffers.
type memory struct {
	limit   int64 // largest value of the field used at which a span with error status is accepted
	normal  int64 // largest value of the field used at which any other span is accepted
	backlog int64 // bound of the field encoded

	used    atomic.Int64
	encoded atomic.Int64 // part of used that belongs to sealed batches

	mu    sync.Mutex
	spare [][]byte
}

// spareArenas is the largest number of buffers that are kept for reuse. A busy host uses
// about so many at the same time.
const spareArenas = 4

func newMemory(limit int64) *memory {
	return &memory{
		limit:   limit,
		normal:  limit - int64(float64(limit)*urgentShare),
		backlog: int64(float64(limit) * backlogShare),
	}
}

// admit counts n bytes. If the bound would be exceeded, it counts nothing and returns
// false. Spans with error status (urgent) have a higher bound.
func (m *memory) admit(n int64, urgent bool) bool {
	limit := m.normal
	if urgent {
		limit = m.limit
	}
	if m.used.Add(n) <= limit {
		return true
	}
	m.used.Add(-n)
	return false
}

// charge changes the account by n bytes, even beyond the bound.
func (m *memory) charge(n int64) { m.used.Add(n) }

// chargeBatch changes the account of encoded batches by n bytes.
func (m *memory) chargeBatch(n int64) {
	m.used.Add(n)
	m.encoded.Add(n)
}

// arena returns an empty buffer with room for size bytes. A reused buffer is at most a
// third larger, because a batch may wait in a queue for a long time.
func (m *memory) arena(size int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, buf := range m.spare {
		if cap(buf) >= size && cap(buf) <= size+size/3 {
			m.spare = slices.Delete(m.spare, i, i+1)
			return buf[:0]
		}
	}
	return make([]byte, 0, size+size/16) // so that a slightly larger batch can reuse it
}

// recycle keeps a buffer so that arena can reuse it. It drops the oldest buffer if it
// already has spareArenas.
func (m *memory) recycle(buf []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.spare) == spareArenas {
		m.spare = slices.Delete(m.spare, 0, 1)
	}
	m.spare = append(m.spare, buf)
}

// batch is a sealed request, with immutable OTLP bytes. The items of all exporters refer to
// it. gRPC refers to it while it sends the bytes. Safe for concurrent use.
type batch struct {
	mem     *memory
	data    []byte
	charged int64 // number of bytes in the memory account; it never changes
	// refs counts the items and the leases of gRPC that use the batch. The memory is
	// freed when refs becomes zero.
	refs atomic.Int32
	// lost is true if gRPC may keep the bytes for ever. They are not reused, and the garbage
	// collector frees them.
	lost atomic.Bool
}

// batchOverhead is the estimated memory of a batch besides its bytes: the struct, and an
// item for each of a few exporters.
const batchOverhead = 512

// newBatch returns a batch and adds it to the memory account, with the capacity of
// data. The caller must release the batch once.
func newBatch(m *memory, data []byte) *batch {
	b := &batch{mem: m, data: data, charged: int64(cap(data)) + batchOverhead}
	b.refs.Store(1)
	m.chargeBatch(b.charged)
	return b
}

// Bytes returns the encoded request, which must not be changed.
func (b *batch) Bytes() []byte { return b.data }

// Size returns the number of bytes that the memory account counts for the batch.
func (b *batch) Size() int64 { return b.charged }

func (b *batch) Retain() { b.refs.Add(1) }

func (b *batch) Release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	b.mem.chargeBatch(-b.charged)
	if !b.lost.Load() {
		b.mem.recycle(b.data)
	}
	b.data = nil
}
