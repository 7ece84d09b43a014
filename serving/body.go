package serving

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// requestBody is a request's body as its handler reads it. The proxy can end it
// while the handler is reading.
type requestBody struct {
	body    io.ReadCloser // the connection's
	watched *watched
	ending  atomic.Pointer[error] // why it is about to end

	mu  sync.Mutex
	err error // why it has ended
}

// newRequestBody gives nil where r has no body.
func newRequestBody(r *http.Request, x *watched) *requestBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	return &requestBody{body: r.Body, watched: x}
}

// Read implements [io.Reader].
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.watched.reading.Store(b.watched.now())
	defer b.watched.reading.Store(0)
	n, err := b.body.Read(p)
	if cause := b.ending.Load(); cause != nil && err != nil && err != io.EOF {
		err = *cause // the deadline is our own
	}
	return n, err
}

// Close implements [io.Closer].
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.watched.reading.Store(b.watched.now()) // net/http reads what is left, up to 256 KiB
	defer b.watched.reading.Store(0)
	return b.body.Close()
}

// end has later reads fail with cause, once the read that is under way has
// returned, which interrupt sees to. If a read were still
// under way when the proxy returns, net/http would abort it and clear that
// deadline, and then wait for a stalled client without limit.
func (b *requestBody) end(cause error, interrupt func() error) {
	if b == nil {
		_ = interrupt()
		return
	}
	b.ending.Store(&cause)
	if interrupt() != nil {
		return // a read ends by itself
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = cause
}
