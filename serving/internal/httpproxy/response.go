package httpproxy

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
)

// phase names the owner of the response. It only moves forward.
type phase uint8

const (
	open     phase = iota // the response has not begun
	begun                 // the handler has sent status and headers
	hijacked              // the handler has taken the connection over
	ended                 // the handler has returned; the proxy may respond
	lost                  // the proxy took the response from a handler that still runs
)

// response is the http.ResponseWriter that a handler sees. Both the handler and the proxy
// may try to respond, the proxy for example at a timeout. Only the first response is
// sent. After the runtime has ended the request's context, the handler cannot begin a
// response, so the result does not depend on the scheduler. A client that closes its side
// ends the context too, but the handler can still answer, because the client may read on.
//
// Nothing is buffered here. net/http holds up to some 4 KiB until a Flush, except for
// server-sent events: each event is sent when it is whole. A response implements Flusher,
// the deadlines and EnableFullDuplex of http.ResponseController, and io.StringWriter. It
// implements Hijacker for requests that ask for another protocol: see upgrade.go. It has
// no Unwrap, because a handler could then write without the lock.
//
// The methods for the proxy are in exchange.go.
type response struct {
	x       *exchange
	conn    http.ResponseWriter // net/http's response; guarded by mu once the handler runs
	request *http.Request       // the request as the app sees it
	upgrade *upgrade            // nil if the request asks for none

	mu      sync.Mutex
	pace    pace
	phase   phase
	informs bool        // a 1xx response has set headers on conn
	events  eventStream // the state of a response that is a stream of events
	header  http.Header // the handler's own headers, copied to conn when the response begins
	status  int         // status of the handler's response; 0 until it begins
	missing int64       // bytes that are missing of a declared Content-Length; -1: unknown
	late    bool        // the handler has written after the client closed its side
	whole   bool        // the handler has returned and net/http may complete the response
	why     error       // the reason for which the response was lost
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

// WriteHeader implements [http.ResponseWriter]. It sends a 1xx at once.
func (p *response) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.phase == begun:
		p.conn.WriteHeader(status) // net/http logs that the call is superfluous
	case p.phase != open || p.checkRequestLocked() != nil:
		// The proxy responds, or has responded. The next Write returns the error.
	case status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols:
		maps.Copy(p.conn.Header(), p.header)
		p.informs = true
		p.pace.beginWrite()
		p.conn.WriteHeader(status)
		_ = p.pace.endWrite(nil) // WriteHeader returns no error
	default:
		p.beginLocked(status)
		if p.events.on {
			_ = p.flushLocked() // the client must get the beginning at once; Write returns the error
		}
	}
}

// Write implements [http.ResponseWriter]. It fails with the context's cause after the
// request was ended.
func (p *response) Write(b []byte) (int, error) {
	return writeSteps(p, b, func(w io.Writer, b []byte) (int, error) { return w.Write(b) })
}

// WriteString implements [io.StringWriter].
func (p *response) WriteString(s string) (int, error) { return writeSteps(p, s, io.WriteString) }

// stepBytes is the number of bytes in one write. A client must read them within the stall
// timeout.
const stepBytes = 64 << 10

// writeSteps writes b step by step.
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
		if p.missing > 0 {
			p.missing -= int64(m)
		}
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
		err = p.flushLocked()
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
	return p.flushLocked()
}

func (p *response) flushLocked() error {
	p.pace.flushed = true
	p.pace.beginWrite()
	return p.pace.endWrite(p.pace.controller.Flush())
}

// finishStream sends the bytes of a whole response that net/http still has, so that the
// stall limit applies to them. A response that fits into net/http's buffer is left to
// net/http, without a limit.
func (p *response) finishStream() {
	const buffer = 4 << 10
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.whole && (p.pace.flushed || p.pace.wrote > buffer) {
		_ = p.flushLocked() // the client may have left
	}
	p.pace.writes.Finish(0)
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

// setting calls set with the lock held, unless the response no longer belongs to the
// handler.
func (p *response) setting(set func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase > begun {
		return p.takenLocked()
	}
	return set()
}

// claimLocked gives the response to the handler, with status 200 if it has not begun. If
// that is no longer possible, it returns the reason.
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
// nil. If a client has only closed its side, the handler may write on, and is late.
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

// takenLocked returns the error for a handler to which the response no longer belongs.
func (p *response) takenLocked() error {
	if p.phase == hijacked {
		return http.ErrHijacked
	}
	if p.why != nil {
		return p.why
	}
	return http.ErrHandlerTimeout // the handler writes after it has returned
}

// beginLocked sends status and the handler's headers.
func (p *response) beginLocked(status int) {
	h := p.conn.Header()
	if p.informs {
		clear(h) // the handler may have removed headers of a 1xx response
	}
	maps.Copy(h, p.header)
	h[headerRequestID] = []string{p.x.identity.ID} // the handler cannot change it
	if prefix := p.x.route.Prefix; prefix != "/" && status >= 300 && status <= 399 {
		if to, ok := rebase(h.Get("Location"), prefix, p.request.URL.Path); ok {
			h.Set("Location", to)
		}
	}
	p.conn.WriteHeader(status) // panics for an invalid status, and then nothing has begun
	p.phase, p.status, p.events.on = begun, status, isEventStream(p.header)
	switch {
	case p.request.Method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified:
		p.missing = 0
	default:
		p.missing = declaredLength(p.header)
	}
}

// declaredLength returns the Content-Length, or -1.
func declaredLength(h http.Header) int64 {
	declared := h.Get("Content-Length")
	if declared == "" {
		return -1 // ParseInt would allocate an error
	}
	n, err := strconv.ParseInt(declared, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// completeLocked reports whether the handler has written all bytes of the declared
// Content-Length, or the response has no body. In both cases, a client that leaves misses
// nothing.
func (p *response) completeLocked() bool { return p.phase == begun && p.missing == 0 }

// sent returns the status of the handler's response, or 0 if it has not begun.
func (p *response) sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}
