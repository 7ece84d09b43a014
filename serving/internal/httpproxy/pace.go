package httpproxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/stall"
)

// pace sets the read and write deadlines of one request's connection or stream. They bound
// the time for which the client may delay the request.
//
// The client has stalled if a deadline of the stall limit ended one of three operations: a
// read of the handler (see requestBody), a write of the handler, or the read of the
// body's end that net/http makes before a write.
//
// The response's lock guards duplex, broken, flushed and wrote. The other fields are set
// before the handler runs, and are safe for concurrent use.
type pace struct {
	controller http.ResponseController // sets deadlines and flushes, for net/http's response
	http2      bool                    // the request came by HTTP/2, so a passed deadline ends its stream
	limit      time.Duration           // the stall limit; no limit if not positive
	peer       *connection             // connection of an HTTP/2 request; nil for HTTP/1
	writes     stall.Deadline          // deadline of writes to the client
	body       *requestBody            // nil if the request has no body
	stalled    atomic.Bool             // the client has delayed a read or a write beyond the limit

	duplex  bool  // the handler reads the body while it writes
	broken  bool  // a write of the response has failed
	flushed bool  // the response was flushed, so the client may have seen its beginning
	wrote   int64 // number of written bytes of the response's body
}

func (p *pace) prepare(w http.ResponseWriter, r *http.Request, limit time.Duration) {
	p.controller = *http.NewResponseController(w)
	p.http2, p.limit, p.peer = r.ProtoMajor == 2, limit, connectionOf(r)
	p.writes = stall.New(limit, p.http2, p.controller.SetWriteDeadline)
	if r.Body != nil && r.Body != http.NoBody {
		p.body = &requestBody{body: r.Body, http2: p.http2, reads: stall.New(limit, p.http2, p.controller.SetReadDeadline), stalled: &p.stalled}
	}
}

// beginWrite starts the limit of a write. If net/http first reads the end of the request's
// body, the client also has the limit for that read.
func (p *pace) beginWrite() {
	if !p.awaitsBody() {
		p.writes.Begin(0)
		return
	}
	p.body.reads.Begin(0)
	p.writes.Begin(p.limit)
}

// awaitsBody reports whether net/http reads the end of the body before it sends the
// response.
func (p *pace) awaitsBody() bool { return !p.http2 && !p.duplex && p.body.remains() }

// endWrite ends a write that returned err. It returns the error for the handler.
func (p *pace) endWrite(err error) error {
	defer p.writes.Done()
	if p.awaitsBody() && p.body.reads.Expired() {
		p.stalled.Store(true)
	}
	if err == nil {
		p.peer.progress()
		return nil
	}
	p.broken = true
	if p.writes.Expired() {
		p.stalled.Store(true)
		p.peer.closeStuck(p.limit)
		return cause.ErrClientStalled
	}
	return err
}

// flush sends the bytes that net/http holds, within the limit of a write.
func (p *pace) flush() error {
	p.flushed = true
	p.beginWrite()
	return p.endWrite(p.controller.Flush())
}

// hurry sets deadlines for a write of the handler that is under way. Such a write waits for
// a client that does not read, or that does not send the end of its body. hurry returns
// false if it cannot set the deadline of the write, which then ends by itself.
func (p *pace) hurry(by time.Time) bool {
	set := p.writes.Hurry(by) == nil
	p.body.hurry(time.Now())
	return set
}

// flushLast sends the bytes that net/http holds, because the connection is about to be cut.
// A slow client has CutGrace to read them.
func (p *pace) flushLast() {
	_ = p.writes.Hurry(time.Now().Add(inflight.CutGrace)) // if this fails, the flush ends by itself
	if !p.http2 {
		p.body.hurry(time.Now().Add(inflight.CutGrace / 2)) // net/http may first read the end of the body
	}
	_ = p.controller.Flush() // fails if the client has left or does not read
}

// netHTTPBuffer is the size of a response, in bytes, that net/http holds until the handler
// has returned.
const netHTTPBuffer = 4 << 10

// finish bounds the time of net/http's work after the proxy has returned: net/http reads the
// end of a body that the handler did not read, and sends the last bytes. The argument is the
// last phase of the response.
func (p *pace) finish(at phase) {
	switch {
	case p.http2:
		// The stall limit applies to the bytes that are sent here. A response that fits into
		// net/http's buffer is left to net/http, without a limit.
		if at == whole && (p.flushed || p.wrote > netHTTPBuffer) {
			_ = p.flush() // fails if the client has left or does not read
		}
		p.writes.Finish(0)
	case at == lost || !p.body.remains():
		p.writes.Finish(0)
	default:
		if p.stalled.Load() || p.body.reads.Hurried() {
			p.body.hurry(time.Now()) // after a read that failed, net/http must not wait for the rest of the body
		} else {
			p.body.reads.Finish(0)
		}
		p.writes.Finish(p.limit)
	}
}

// release leaves the connection to net/http. From then on, user code that still has the body
// of the request cannot set a deadline.
func (p *pace) release() {
	p.writes.Release()
	if p.body != nil {
		p.body.reads.Release()
	}
}

// requestBody is the body of a request as its handler reads it. The proxy can make reads
// fail while the handler runs.
type requestBody struct {
	body    io.ReadCloser         // the body that net/http gave
	http2   bool                  // the request came by HTTP/2
	reads   stall.Deadline        // deadline of reads from the client
	stalled *atomic.Bool          // pace.stalled; set if the client delays a read beyond the limit
	ending  atomic.Pointer[error] // reason for which the proxy ends the body; nil until failReads
	read    atomic.Bool           // the body was read to its end, so net/http reads the connection itself

	mu  sync.Mutex
	err error // error of all later reads; nil while reads go to net/http
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

// Close implements [io.Closer]. As in net/http, Close ends a concurrent Read over HTTP/2,
// and waits for a concurrent Read over HTTP/1.
func (b *requestBody) Close() error {
	if b.http2 {
		return b.body.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.reads.Begin(0) // net/http reads the remaining bytes, up to 256 KiB
	err := b.wasReadLocked(b.body.Close())
	if err == nil {
		b.read.Store(true) // net/http reads no more bytes of the body after Close
	}
	return err
}

// wasReadLocked ends a read that returned err. It returns the error for the handler.
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

// hurry sets a deadline for a read that may be under way, because the body is no longer
// needed. It returns false if it cannot set the deadline.
func (b *requestBody) hurry(by time.Time) bool {
	if !b.remains() {
		return true
	}
	return b.reads.Hurry(by) == nil
}

// failReads makes later reads of the handler fail with why, and waits for the end of a
// read that is under way. If that read still ran when the proxy returns, net/http would
// abort it, clear the deadline, and then wait for a stalled client without a limit.
func (b *requestBody) failReads(why error) {
	if !b.remains() {
		return
	}
	b.ending.Store(&why)
	if !b.hurry(time.Now()) {
		return // the connection is closed or takes no deadlines, so no read waits for the client
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = why
}
