package pipeline

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// leases are the buffers of batches that gRPC holds for one connection. A lease begins
// when gRPC takes a buffer. It ends when gRPC puts the buffer back, or when the
// connection is closed. Safe for concurrent use.
type leases struct {
	mu   sync.Mutex
	held map[*lease]struct{} // nil once the connection is closed
}

func newLeases() *leases { return &leases{held: map[*lease]struct{}{}} }

// lease is one buffer that gRPC holds. It is also the buffer pool to which gRPC returns
// the buffer.
type lease struct {
	all *leases
	b   *batch
}

var _ mem.BufferPool = (*lease)(nil)

// buffer returns the bytes of b for a gRPC call, and begins a lease.
func (l *leases) buffer(b *batch) mem.BufferSlice {
	data := b.data
	if mem.IsBelowBufferPoolingThreshold(cap(data)) {
		// gRPC never puts back a buffer of this size, so it gets a copy.
		return mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), data...))}
	}
	one := &lease{all: l, b: b}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		b.Retain()
		l.held[one] = struct{}{}
	} else {
		b.lost.Store(true) // the connection is closed, so gRPC will not return the buffer
	}
	return mem.BufferSlice{mem.NewBuffer(&data, one)}
}

// bytes returns the size of all batches that gRPC holds.
func (l *leases) bytes() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.held {
		n += one.b.Size()
	}
	return n
}

// Get is never called, because gRPC only puts buffers back. It implements mem.BufferPool.
func (*lease) Get(length int) *[]byte { buf := make([]byte, length); return &buf }

// Put ends the lease, because gRPC puts the buffer back. It implements mem.BufferPool.
func (o *lease) Put(*[]byte) {
	o.all.mu.Lock()
	_, held := o.all.held[o]
	delete(o.all.held, o)
	o.all.mu.Unlock()
	if held {
		o.b.Release()
	}
}

// forget ends the leases of b, after a call with b has failed because the connection
// broke. In that case gRPC (v1.85) never puts back a buffer that it had not written,
// and the garbage collector frees the bytes.
func (l *leases) forget(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(func(one *lease) bool { return one.b == b })
}

// abandon ends all leases, because the connection is closed. gRPC may still read a
// buffer that it has not put back.
func (l *leases) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(func(*lease) bool { return true })
	l.held = nil
}

func (l *leases) endLocked(which func(*lease) bool) {
	for one := range l.held {
		if which(one) {
			delete(l.held, one)
			one.b.lost.Store(true)
			one.b.Release()
		}
	}
}
