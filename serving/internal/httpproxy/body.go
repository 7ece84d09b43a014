package httpproxy

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/stall"
)

// requestBody is the body of a request for its handler. The proxy can end it while the
// handler reads.
type requestBody struct {
	body    io.ReadCloser // the body that net/http gave
	stream  bool          // the request came by HTTP/2
	reads   stall.Deadline
	stalled *atomic.Bool          // set if the client has delayed a read beyond the limit
	ending  atomic.Pointer[error] // reason for which the proxy ends the body; nil until then
	read    atomic.Bool           // the body was read to its end; from then on net/http watches the connection

	mu  sync.Mutex
	err error // error of later reads; nil before the body has ended
}

// Read implements [io.Reader].
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.reads.Begin(0)
	n, err := b.body.Read(p)
	return n, b.wasReadLocked(err)
}

// Close implements [io.Closer]. As with net/http alone, over HTTP/2 it ends a
// concurrent Read, and over HTTP/1 it waits for a concurrent Read.
func (b *requestBody) Close() error {
	if b.stream {
		return b.body.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.reads.Begin(0) // net/http reads the rest, up to 256 KiB
	err := b.wasReadLocked(b.body.Close())
	if err == nil {
		b.read.Store(true) // net/http has read the body to its end, or has given up
	}
	return err
}

// wasReadLocked ends a read that returned err, and returns the error for the handler.
func (b *requestBody) wasReadLocked(err error) error {
	defer b.reads.Done()
	why := b.ending.Load()
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.read.Store(true)
		b.reads.Lift()
	case why != nil:
		return *why // the read failed because of a deadline that the proxy has set
	case b.reads.Expired():
		b.stalled.Store(true)
		b.err = cause.ErrClientStalled
		return b.err
	}
	return err
}

// remains reports whether net/http may still read from the body.
func (b *requestBody) remains() bool { return b != nil && !b.read.Load() }

// hurry sets a deadline for the current read, if any, because the body is no longer
// needed. It returns false if it cannot set the deadline.
func (b *requestBody) hurry(by time.Time) (sure bool) {
	if !b.remains() {
		return true
	}
	return b.reads.Hurry(by) == nil
}

// failReads makes later reads fail with why, after the current read has returned. If a
// read still ran when the proxy returns, net/http would abort the read, clear the
// deadline, and then wait for a stalled client without limit.
func (b *requestBody) failReads(why error) {
	if !b.remains() {
		return
	}
	b.ending.Store(&why)
	if !b.hurry(time.Now()) {
		return // no read waits for the client
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = why
}
