package httpproxy

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/socket"
)

// phase is the state of a response. It only moves forward, in this order:
//
//	phase     set by       handler   writer of the response
//	open                   runs      the handler, which has sent nothing
//	begun     beginLocked  runs      the handler, which has sent status and headers
//	hijacked  Hijack       runs      the handler, on the socket
//	whole     complete     returned  net/http, from its buffer
//	failed    complete     returned  the proxy, if status is 0; otherwise it cuts the connection
//	lost      take         may run   the proxy, if status is 0; otherwise it cuts the connection
//
// A lost response is not cut if the handler had written its last byte: see take. The handler
// of a hijacked connection may also have returned.
type phase uint8

const (
	open     phase = iota // the response has not begun
	begun                 // the handler has sent status and headers
	hijacked              // the handler has taken the connection over
	whole                 // the handler has returned, and net/http sends the end of its response
	failed                // the handler has returned, and its response is missing or incomplete
	lost                  // the proxy has taken the response from a handler that had not returned
)

// response is the http.ResponseWriter that a handler sees. Both the handler and the proxy
// may try to respond, the proxy for example at a timeout. Only the first response is
// sent. After the runtime has ended the request's context, the handler cannot begin a
// response. If the client closes its side, that ends the context too, but the handler can
// still respond, because the client may read on.
//
// A response has no buffer. net/http holds up to some 4 KiB until a Flush, except for
// server-sent events: each event is sent when it is whole. A response implements Flusher,
// the deadlines and EnableFullDuplex of http.ResponseController, and io.StringWriter. It
// implements Hijacker for requests that ask for another protocol: see upgrade.go. It has
// no Unwrap, because a handler could then write without the lock.
//
// The handler uses the exported methods, and its goroutine calls complete at the end. The
// proxy's goroutine calls take. After complete or take, the proxy's goroutine reads the
// fields without the lock, because they no longer change.
type response struct {
	x       *exchange           // response reads only its facts about the request, which do not change
	conn    http.ResponseWriter // net/http's response; guarded by mu once the handler runs
	request *http.Request       // the request as the app sees it, without the route's prefix
	upgrade *upgrade            // the change of protocol that the request asks for; nil if it asks for none

	mu     sync.Mutex
	pace   pace
	phase  phase
	events eventStream  // whether the response is a stream of server-sent events
	header http.Header  // headers that the handler sets; copied to conn when the response begins
	status int          // status of the handler's response; 0 until the response begins
	length int64        // number of bytes that the body will have; -1 if the handler has not declared it
	late   bool         // the handler has written after the client closed its side
	socket *socket.Conn // connection that the handler has taken over; nil except in the phase hijacked
	why    error        // reason for which the request ended before its response; nil before take
}

var (
	_ http.Flusher    = (*response)(nil)
	_ http.Hijacker   = (*response)(nil)
	_ io.StringWriter = (*response)(nil)
)

// Header implements [http.ResponseWriter].
func (p *response) Header() http.Header {
	if p.header == nil {
		p.header = make(http.Header)
	}
	return p.header
}

// WriteHeader implements [http.ResponseWriter]. It sends a response with a status 1xx at
// once.
func (p *response) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.phase == begun:
		p.conn.WriteHeader(status) // net/http does not send this second status, and logs it
	case p.phase != open || p.checkRequestLocked() != nil:
		// The handler can no longer respond. WriteHeader has no result, so the next Write
		// returns the reason.
	case status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols:
		h := p.conn.Header()
		maps.Copy(h, p.header)
		// If the client resets its HTTP/2 stream, net/http may still encode the headers when
		// WriteHeader has returned. With a Content-Length it encodes a copy, without that key.
		h[headerContentLength] = nil
		p.pace.beginWrite()
		p.conn.WriteHeader(status)
		_ = p.pace.endWrite(nil) // nil, because WriteHeader reports no error
		p.pace.writes.Lift()     // net/http writes the status 100 without a new deadline
		delete(h, headerContentLength)
		for key := range p.header {
			delete(h, key) // the handler may remove it from its headers before the response begins
		}
	default:
		p.beginLocked(status)
		if p.events.on {
			_ = p.pace.flush() // the client of an event stream waits for the headers; the next Write returns the error
		}
	}
}

// Write implements [http.ResponseWriter]. After the runtime has ended the request, it fails
// with the cause of the request's context.
func (p *response) Write(b []byte) (int, error) {
	return writeSteps(p, b, func(w io.Writer, b []byte) (int, error) { return w.Write(b) })
}

// WriteString implements [io.StringWriter].
func (p *response) WriteString(s string) (int, error) { return writeSteps(p, s, io.WriteString) }

// stepBytes is the largest number of bytes in one write to net/http. The client must read
// these bytes within the stall limit.
const stepBytes = 64 << 10

// writeSteps writes b in pieces of stepBytes by write.
func writeSteps[T string | []byte](p *response, b T, write func(io.Writer, T) (int, error)) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.claimLocked(); err != nil {
		return 0, err
	}
	event := p.events.on && endsEvent(b, &p.events.line)
	for {
		p.pace.beginWrite()
		m, err := write(p.conn, b[:min(len(b), stepBytes)])
		p.pace.wrote += int64(m)
		n += m
		b = b[m:]
		if err = p.pace.endWrite(err); err != nil {
			return n, err
		}
		if len(b) == 0 {
			break
		}
	}
	if event {
		err = p.pace.flush()
	}
	return n, err
}

// Flush implements [http.Flusher].
func (p *response) Flush() { _ = p.FlushError() }

// FlushError implements [http.ResponseController.Flush].
func (p *response) FlushError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.claimLocked(); err != nil {
		return err
	}
	return p.pace.flush()
}

// SetReadDeadline implements [http.ResponseController.SetReadDeadline].
func (p *response) SetReadDeadline(t time.Time) error {
	return p.setting(func() error {
		if p.pace.body == nil {
			return p.pace.controller.SetReadDeadline(t)
		}
		return p.pace.body.reads.SetOwn(t)
	})
}

// SetWriteDeadline implements [http.ResponseController.SetWriteDeadline].
func (p *response) SetWriteDeadline(t time.Time) error {
	return p.setting(func() error { return p.pace.writes.SetOwn(t) })
}

// EnableFullDuplex implements [http.ResponseController.EnableFullDuplex].
func (p *response) EnableFullDuplex() error {
	return p.setting(func() error {
		p.pace.duplex = true
		return p.pace.controller.EnableFullDuplex()
	})
}

// setting calls set with the lock held, or returns an error if the handler no longer has the
// response.
func (p *response) setting(set func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase > begun {
		return p.takenLocked()
	}
	return set()
}

// claimLocked must be called before a write of the handler. It begins the response with
// status 200 if it has not begun. If the handler may no longer write, it returns the reason.
func (p *response) claimLocked() error {
	if p.phase > begun {
		return p.takenLocked()
	}
	if why := p.checkRequestLocked(); why != nil && p.phase == open {
		return why
	}
	if p.phase == open {
		p.beginLocked(http.StatusOK)
	}
	return nil
}

// checkRequestLocked returns the reason for which the runtime has ended the request, or
// nil. If the client has only closed its side, the handler may still write, and
// checkRequestLocked sets late.
func (p *response) checkRequestLocked() error {
	if p.x.ctx.Err() == nil {
		return nil
	}
	why := cause.Of(p.x.ctx)
	if errors.Is(why, cause.ErrClientGone) {
		p.late = true
		return nil
	}
	return why
}

// takenLocked returns the error for a handler that uses the response after it was hijacked,
// completed or taken away.
func (p *response) takenLocked() error {
	if p.phase == hijacked {
		return http.ErrHijacked
	}
	if p.why != nil {
		return p.why
	}
	return http.ErrHandlerTimeout // user code writes after the handler has returned
}

// beginLocked sends the status and the handler's headers to net/http.
func (p *response) beginLocked(status int) {
	h := p.conn.Header()
	maps.Copy(h, p.header)
	h[headerRequestID] = []string{p.x.identity.ID} // replaces a header that the handler has set
	if prefix := p.x.route.Prefix; prefix != "/" && status >= 300 && status <= 399 {
		if to, ok := rebase(h.Get("Location"), prefix, p.request.URL.Path); ok {
			h.Set("Location", to)
		}
	}
	p.conn.WriteHeader(status) // panics for an invalid status, and then the phase stays open
	p.phase, p.status, p.events.on = begun, status, isEventStream(p.header)
	p.length = declaredLength(p.header)
	if p.request.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified {
		p.length = 0 // the response has no body
	}
}

// declaredLength returns the value of Content-Length, or -1 if there is no valid value.
func declaredLength(h http.Header) int64 {
	declared := h.Get(headerContentLength)
	if declared == "" {
		return -1 // for the empty text, ParseInt would allocate an error
	}
	n, err := strconv.ParseInt(declared, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// completeLocked reports whether the handler has written all bytes of the declared
// Content-Length, or the response has no body. In both cases, the client can have the whole
// response although the handler runs on.
func (p *response) completeLocked() bool {
	return p.phase == begun && p.length >= 0 && p.pace.wrote >= p.length
}

// complete ends the response of a handler that has returned with err. The handler's
// goroutine calls it once. It returns the status that the handler has sent, or 0, and the
// error that ended the request; nil for an ordinary response. A panic of the handler takes
// precedence over the end of the context. The end of the context takes precedence over other
// errors, because it mostly causes them.
func (p *response) complete(err error) (status int, _ error) {
	if s, why := p.taken(); s != nil {
		err = endSocket(s, err, why)
		return s.Status(), err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == lost {
		return p.status, cause.Heavier(err, p.why)
	}
	why := p.earlyEndLocked(err)
	ordinary := err == nil && !p.pace.broken && (why == nil || errors.Is(why, cause.ErrClientGone))
	if ordinary && p.phase == open {
		p.beginLocked(http.StatusOK) // as net/http would
		if why != nil {
			p.status = 0 // the client left before the response, which therefore counts as not sent
		}
	}
	if ordinary && why == nil && p.pace.wrote < p.length {
		err = fmt.Errorf("handler wrote %d bytes of a body with Content-Length %d", p.pace.wrote, p.length)
		ordinary = false
	}
	if ordinary && len(p.header) > 0 {
		maps.Copy(p.conn.Header(), p.header) // net/http sends the trailers among these headers, and ignores the others
	}
	p.phase = failed
	if ordinary {
		p.phase = whole
	}
	if why != nil {
		err = cause.Heavier(err, why)
	}
	return p.status, err
}

// earlyEndLocked returns the reason for which the request ended before the handler, or nil if
// the handler has answered in time. err is the error with which the handler returned.
//
// After the client has closed its side, a handler without an error and without a failed
// write still counts as having answered in two cases: it has written since, or no part of
// its response was flushed, so that net/http sends the whole response now.
func (p *response) earlyEndLocked(err error) error {
	stalled := p.pace.stalled.Load()
	switch {
	case p.completeLocked():
		return nil
	case stalled && (err != nil || p.pace.broken || p.phase == open):
		return cause.ErrClientStalled
	case p.x.ctx.Err() == nil:
		return nil
	}
	why := cause.Of(p.x.ctx)
	answered := p.phase == begun && !p.pace.broken && (p.late || !p.pace.flushed)
	switch {
	case errors.Is(why, cause.ErrClientGone) && err == nil && answered:
		return nil
	case errors.Is(why, cause.ErrClientGone) && stalled: // net/http ends the context after a read that failed by a stall
		return cause.ErrClientStalled
	}
	return why
}

// take takes the response away from a handler that may still run, because the request has
// ended for the reason why. It returns the phase of the response after that:
//
//   - lost: the proxy has the response. No write is under way, and later writes of the
//     handler fail. The field why is nil if the handler had written its whole response.
//   - whole or failed: the handler has returned in the meantime.
//   - hijacked: the connection is a socket, which the caller must end.
func (p *response) take(why error) phase {
	hurried, by := false, time.Now().Add(inflight.CutGrace)
	if !p.mu.TryLock() { // the handler is in a write, and may be stuck there
		hurried = p.pace.hurry(by) // ends that write
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	reset := hurried && p.pace.http2 && !time.Now().Before(by) // the deadline has passed, which ends an HTTP/2 stream
	switch {
	case p.phase == hijacked:
		p.why = why
		return p.phase
	case p.phase > hijacked && !reset:
		return p.phase
	}
	if reset || !p.completeLocked() {
		p.why = why // the client cannot get the whole response
	}
	p.phase = lost
	return p.phase
}
