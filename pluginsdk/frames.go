package pluginsdk

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// frameBytes is the most that gRPC receives at a time, and what a host sends
// but at the end of a batch.
const frameBytes = 16 << 10

// frames are the buffers that messages are received in. gRPC's own pool zeroes
// each before it is overwritten, which for a batch costs as much as a copy of it.
// Safe for concurrent use.
type frames struct{ pool sync.Pool }

var _ mem.BufferPool = (*frames)(nil)

// Get gives a buffer whose content is whatever it was.
func (f *frames) Get(length int) *[]byte {
	if length > frameBytes {
		buf := make([]byte, length)
		return &buf
	}
	buf, ok := f.pool.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
		*buf = make([]byte, frameBytes)
	}
	*buf = (*buf)[:length]
	return buf
}

// Put takes a buffer back.
func (f *frames) Put(buf *[]byte) {
	if cap(*buf) == frameBytes {
		f.pool.Put(buf)
	}
}
