package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// Shares of Config.QueueBytes. Encoded batches are kept below backlogShare, so
// that spans that end can be taken in whatever the exporters do; the last
// urgentShare is for spans with error status.
const (
	backlogShare = 5.0 / 8
	urgentShare  = 1.0 / 16
)

// memory is the one account of bytes: ended spans at their estimated size, and
// encoded batches at their own. Batches that gRPC still holds after a failed
// call count until their connection is closed. Safe for concurrent use.
//
// What it does not count is constant: the encoder's buffer, the arenas kept for
// reuse (spareArenas), and gRPC's own buffers.
type memory struct {
	limit   int64 // of used, for urgent spans
	normal  int64 // of used, for other spans
	backlog int64 // of encoded

	used    atomic.Int64
	encoded atomic.Int64 // the part of used that is sealed batches

	mu    sync.Mutex
	spare [][]byte
}

// spareArenas are kept at most: what a busy host has in the air.
const spareArenas = 4

func newMemory(limit int64) *memory {
	return &memory{
		limit:   limit,
		normal:  limit - int64(float64(limit)*urgentShare),
		backlog: int64(float64(limit) * backlogShare),
	}
}

// admit charges n bytes, or refuses where the bound would be passed.
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

// charge moves the account by n bytes, unconditionally.
func (m *memory) charge(n int64) { m.used.Add(n) }

// arena gives an empty buffer with room for size bytes, and little more: what
// waits in it may wait for long.
func (m *memory) arena(size int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, buf := range m.spare {
		if cap(buf) >= size && cap(buf) <= size+size/3 {
			m.spare = slices.Delete(m.spare, i, i+1)
			return buf[:0]
		}
	}
	return make([]byte, 0, size+size/16) // the next may be a bit larger
}

// recycle keeps a buffer for arena, instead of the one kept for longest if there
// are too many.
func (m *memory) recycle(buf []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.spare) == spareArenas {
		m.spare = slices.Delete(m.spare, 0, 1)
	}
	m.spare = append(m.spare, buf)
}

// batch is a sealed request: immutable OTLP bytes, referred to by each
// exporter's item and by gRPC while it sends them. Safe for concurrent use.
type batch struct {
	mem   *memory
	data  []byte
	spans int
	// charged is set at the making: the bytes are gone when the last reference is.
	charged int64
	// refs counts items and leases. The last one to go frees the bytes.
	refs atomic.Int32
	// lost: gRPC may hold the bytes for ever, so they are left to the garbage
	// collector instead of being reused.
	lost atomic.Bool
}

// batchOverhead is what a batch costs besides its bytes: itself, and an item
// for each of a few exporters.
const batchOverhead = 512

// newBatch charges data, with the room behind it. The caller has the first
// reference.
func newBatch(m *memory, data []byte, spans int) *batch {
	b := &batch{mem: m, data: data, spans: spans, charged: int64(cap(data)) + batchOverhead}
	b.refs.Store(1)
	m.used.Add(b.charged)
	m.encoded.Add(b.charged)
	return b
}

// size is what the batch is charged with.
func (b *batch) size() int64 { return b.charged }

func (b *batch) retain() { b.refs.Add(1) }

func (b *batch) release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	b.mem.used.Add(-b.charged)
	b.mem.encoded.Add(-b.charged)
	if !b.lost.Load() {
		b.mem.recycle(b.data)
	}
	b.data = nil
}

// leases are the references that one connection's gRPC holds: each from the
// moment that gRPC takes a buffer until it puts it back, at the latest until
// the connection is closed. Safe for concurrent use.
type leases struct {
	mu   sync.Mutex
	held map[*lease]struct{} // nil once the connection is closed
}

func newLeases() *leases { return &leases{held: map[*lease]struct{}{}} }

// lease is one buffer's way through gRPC. It is the pool that gRPC believes it
// puts the buffer back into.
type lease struct {
	all *leases
	b   *batch
}

var _ mem.BufferPool = (*lease)(nil)

// buffer gives b's bytes to gRPC.
func (l *leases) buffer(b *batch) mem.BufferSlice {
	data := b.data
	if mem.IsBelowBufferPoolingThreshold(cap(data)) {
		// gRPC never gives back what is that small: it gets a copy to keep.
		return mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), data...))}
	}
	one := &lease{all: l, b: b}
	b.retain()
	l.mu.Lock()
	if l.held != nil {
		l.held[one] = struct{}{}
	} else {
		b.lost.Store(true) // closed meanwhile: nobody will put it back
		b.release()
	}
	l.mu.Unlock()
	return mem.BufferSlice{mem.NewBuffer(&data, one)}
}

// bytes is what the leases hold.
func (l *leases) bytes() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.held {
		n += one.b.size()
	}
	return n
}

// Get is never called: gRPC only puts back.
func (*lease) Get(length int) *[]byte { buf := make([]byte, length); return &buf }

// Put ends the lease.
func (o *lease) Put(*[]byte) {
	o.all.mu.Lock()
	_, held := o.all.held[o]
	delete(o.all.held, o)
	o.all.mu.Unlock()
	if held {
		o.b.release()
	}
}

// forget ends the leases of b, after its call failed because the connection
// broke: gRPC (v1.85) never puts back what it had not written to it, and will
// make another connection. The bytes are left to the collector.
func (l *leases) forget(b *batch) {
	ended := 0
	l.mu.Lock()
	for one := range l.held {
		if one.b == b {
			delete(l.held, one)
			ended++
		}
	}
	l.mu.Unlock()
	for range ended {
		b.lost.Store(true)
		b.release()
	}
}

// abandon ends all leases: the connection is closed, and what gRPC has not put
// back it may still read, or never put back.
func (l *leases) abandon() {
	l.mu.Lock()
	held := l.held
	l.held = nil
	l.mu.Unlock()
	for one := range held {
		one.b.lost.Store(true)
		one.b.release()
	}
}
