package httpproxy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/servetrace/servetrace/internal/spans"
	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/inflight"
	"github.com/servetrace/servetrace/serving/internal/router"
	"github.com/servetrace/servetrace/serving/internal/socket"
	"github.com/servetrace/servetrace/serving/internal/stall"
)

// exchange is one request and its response, as the proxy sees them.
//
// The proxy's goroutine calls the methods in this order:
//
//  1. prepare, before it starts the handler, and await.
//  2. endEarly, if the request ends before the handler returns.
//  3. ensureResponse, which responds if the handler did not.
//  4. limitRest and releaseDeadlines, which leave the connection to net/http.
//
// The handler's goroutine uses resp, and calls completeResponse when the handler has
// returned. Only the proxy's goroutine uses the other fields that change.
type exchange struct {
	proxy    *proxy
	r        *http.Request // the request as it arrived
	identity identity.Request
	resp     response
	call     httpCall           // used by the handler's goroutine
	assigned *router.Assignment // nil until a replica has the request

	// For the access log.
	arrived  time.Time
	ctx      context.Context   // context with the proxy span; nil without a route
	span     trace.SpanContext // context of the proxy span; zero if it does not record
	route    *route            // nil: no route matched
	status   int               // status of the client's response, or 499
	err      error             // error that ended the request; nil for an ordinary response
	protocol spans.Protocol    // HTTP or WebSocket
	cut      bool              // whether the connection or stream must be cut

	leftBehind bool // the handler did not return in time, and may still run
}

// prepare makes the response to r, the request as the app sees it.
func (x *exchange) prepare(w http.ResponseWriter, r *http.Request, up *upgrade) {
	p := &x.resp
	p.pace.controller = *http.NewResponseController(w)
	limit, stream := x.proxy.stall, r.ProtoMajor == 2
	p.x, p.conn, p.request, p.upgrade = x, w, r, up
	p.left = -1
	p.pace.limit, p.pace.peer = limit, connectionOf(r)
	p.pace.writes = stall.New(limit, stream, p.pace.controller.SetWriteDeadline)
	if r.Body != nil && r.Body != http.NoBody {
		p.pace.body = &requestBody{body: r.Body, stream: stream, reads: stall.New(limit, stream, p.pace.controller.SetReadDeadline), stalled: &p.pace.stalled}
	}
}

// await waits until the handler has returned, and returns its error. If the request must
// end earlier, it returns the reason. A client that closes its side ends only the handler's
// context. It may still read, so the handler's answer is sent.
func (x *exchange) await(ctx context.Context) (returned bool, err error) {
	cutOff := x.assigned.CutOff()
	if x.route.Timeout <= 0 && x.resp.upgrade == nil {
		ctx = context.Background() // only cutOff ends the wait
	}
	for {
		select {
		case <-x.assigned.Done():
			return true, x.assigned.Err()
		case <-cutOff.Done():
			return false, context.Cause(cutOff)
		case <-ctx.Done():
		}
		switch why := cause.Of(ctx); {
		case errors.Is(context.Cause(ctx), cause.ErrSocketLeft): // the handler closed its socket, and has not returned
			ctx = x.resp.upgrade.outer
		case errors.Is(why, cause.ErrClientGone):
			left, cancel := x.timeLeft()
			defer cancel()
			ctx = left
		default:
			return false, why
		}
	}
}

// timeLeft returns a context that ends by the request's timeout, if it has one, but not
// when the client leaves.
func (x *exchange) timeLeft() (context.Context, context.CancelFunc) {
	if x.route.Timeout <= 0 {
		return context.Background(), func() {}
	}
	return context.WithDeadlineCause(context.Background(), x.arrived.Add(x.route.Timeout), cause.ErrRequestTimeout)
}

// completeResponse completes an ordinary response. The handler's goroutine calls it once,
// when the handler has returned with err. It returns the status that the handler has
// sent, or 0, and the error that ended the request; nil for an ordinary response. A panic
// of the handler takes precedence over the context's end, and the context's end over
// other errors, because they are its consequences.
func (x *exchange) completeResponse(err error) (status int, _ error) {
	p := &x.resp
	if s := p.upgrade.taken(); s != nil {
		err = x.completeSocket(s, err)
		return s.Status(), err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == lost {
		return p.status, cause.Heavier(err, p.why)
	}
	why := x.earlyEndLocked(err)
	p.whole = err == nil && !p.pace.broken && (why == nil || errors.Is(why, cause.ErrClientGone))
	status = p.status
	if p.whole && p.phase == open {
		p.beginLocked(http.StatusOK) // as net/http would; if the client has left, it does not count as an answer
		if why == nil {
			status = http.StatusOK
		}
	}
	if p.whole && len(p.header) > 0 {
		maps.Copy(p.conn.Header(), p.header) // the trailers; net/http reads no other headers at this point
	}
	if why != nil {
		err = cause.Heavier(err, why)
	}
	p.phase, p.status = ended, status
	return status, err
}

// earlyEndLocked returns the reason for which the request ended early, or nil if the handler
// has answered. err is the error with which the handler returned. If the client has closed
// its side, a handler without an error or a failed write has answered in two cases: it
// wrote after the close, or nothing of its response was sent before it returned.
func (x *exchange) earlyEndLocked(err error) error {
	p := &x.resp
	switch {
	case p.completeLocked():
		return nil
	case p.pace.stalled.Load() && (err != nil || p.pace.broken || p.phase == open):
		return cause.ErrClientStalled
	case x.ctx.Err() == nil:
		return nil
	}
	why := cause.Of(x.ctx)
	answered := p.phase == begun && !p.pace.broken && (p.late || !p.pace.flushed)
	switch {
	case errors.Is(why, cause.ErrClientGone) && err == nil && answered:
		return nil
	case errors.Is(why, cause.ErrClientGone) && p.pace.stalled.Load(): // a failed read ends the context, too
		return cause.ErrClientStalled
	}
	return why
}

// completeSocket ends a request whose connection the handler took over, in place of the
// rest of completeResponse. It returns the error that ended the socket.
func (x *exchange) completeSocket(s *socket.Conn, err error) error {
	p := &x.resp
	p.mu.Lock()
	ended := p.why // the reason of the proxy
	p.mu.Unlock()
	if ended == nil && x.ctx.Err() != nil {
		ended = cause.Of(x.ctx)
	}
	why := err
	if ended != nil {
		why = cause.Heavier(err, ended)
	}
	finishSocket(s, why)
	return socketResult(s, err, ended)
}

// endEarly ends the request because of why, unless the handler has returned meanwhile. It
// returns the error that ended the request; nil for an ordinary response.
func (x *exchange) endEarly(why error) error {
	found, complete := x.takeResponse(why)
	switch found {
	case ended:
		<-x.assigned.Done()
		return x.assigned.Err()
	case hijacked:
		s := x.resp.upgrade.taken()
		finishSocket(s, why)
		return socketResult(s, nil, why)
	}
	x.leftBehind = true
	x.resp.pace.body.failReads(why) // the handler reads no more of the body
	if complete {
		x.flush()
		return nil
	}
	return why
}

// takeResponse takes the response away from a handler that may still run, because the
// request has ended; why is the cause. It returns the phase in which it found the
// response. Afterwards the handler can no longer write, and no write is under way. The
// connection belongs to the proxy, except if the phase is ended or hijacked. complete
// reports that the handler had written as many bytes as its Content-Length says.
func (x *exchange) takeResponse(why error) (found phase, complete bool) {
	p := &x.resp
	reset := false
	if !p.mu.TryLock() {
		reset = x.interruptAndLock()
	}
	defer p.mu.Unlock()
	switch {
	case p.phase == hijacked:
		p.why = why
		return hijacked, false
	case p.phase == ended && !reset:
		return ended, true
	case p.phase == ended:
		found = begun // net/http has not written the end of the response
	default:
		found, complete = p.phase, !reset && p.completeLocked()
	}
	p.phase = lost
	if !complete {
		p.why = why
	}
	return found, complete
}

// interruptAndLock takes the lock of the response from a handler that may be stuck in a
// write. A write is stuck while the client does not read, or does not send the end of its
// body, which net/http reads before it replies. reset reports that the HTTP/2 stream
// ended at the deadline, so that the client cannot get all of the response.
func (x *exchange) interruptAndLock() (reset bool) {
	p, by := &x.resp, time.Now().Add(inflight.CutGrace)
	set := p.pace.writes.Hurry(by) == nil // otherwise the write ends by itself
	p.pace.body.hurry(time.Now())
	p.mu.Lock()
	return set && p.request.ProtoMajor == 2 && !time.Now().Before(by)
}

// ensureResponse responds if the handler did not. It returns the status of the response and
// whether the connection must be cut. The handler writes no more.
func (x *exchange) ensureResponse() (status int, cut bool) {
	p := &x.resp
	if s := p.upgrade.taken(); s != nil {
		return p.upgrade.status(s, x.err), x.err != nil
	}
	status = p.sent()
	switch {
	case x.err == nil:
		return status, x.leftBehind && x.r.ProtoMajor == 1 // endEarly may have set deadlines on its connection
	case p.whole:
		return cmp.Or(status, statusClientGone), false
	case status != 0:
		if !errors.Is(x.err, cause.ErrClientGone) {
			x.flush()
		}
		return status, true
	case cause.IsAbort(x.err):
		return http.StatusInternalServerError, true // the client gets no status
	}
	status = statusOf(x.err)
	x.reply(status)
	return status, false
}

// reply responds instead of the handler. The handler has returned, has not begun, or has
// lost the response before it began. If the client has closed its side but still reads, the
// response shows that its request was given up.
func (x *exchange) reply(status int) {
	p := &x.resp
	h := p.conn.Header()
	if p.informs {
		clear(h)
	}
	if x.leftBehind && x.r.ProtoMajor == 1 {
		h.Set("Connection", "close") // endEarly may have set deadlines on the connection
	}
	if after := retryAfter(x.err); after != "" {
		h.Set("Retry-After", after)
	}
	if status == statusClientGone {
		status = http.StatusServiceUnavailable
	}
	writeText(p.conn, status, x.identity.ID, x.text(status))
}

// flush sends the bytes that net/http still holds. So the client sees the beginning of the
// response before its connection is cut. A slow client has CutGrace to read them.
func (x *exchange) flush() {
	_ = x.resp.pace.writes.Hurry(time.Now().Add(inflight.CutGrace)) // if this fails, the flush ends by itself
	if x.r.ProtoMajor == 1 {
		x.resp.pace.body.hurry(time.Now().Add(inflight.CutGrace / 2)) // net/http may first read the end of the body
	}
	_ = x.resp.pace.controller.Flush() // the client may have left
}

// limitRest bounds the time for the rest of the exchange. net/http reads the end of a body
// that the handler did not read, and sends the last bytes.
func (x *exchange) limitRest() {
	p := &x.resp
	switch {
	case p.upgrade.taken() != nil || x.cut: // nothing is left to do
	case x.r.ProtoMajor != 1:
		p.finishStream()
	case x.leftBehind || !p.pace.body.remains():
		p.pace.writes.Finish(0)
	default:
		// A read that interruptAndLock has ended leaves the connection unusable.
		if p.pace.stalled.Load() || p.pace.body.reads.Hurried() {
			p.pace.body.hurry(time.Now())
		} else {
			p.pace.body.reads.Finish(0)
		}
		p.pace.writes.Finish(x.proxy.stall)
	}
}

// releaseDeadlines leaves the connection to net/http. From then on, user code that still
// has the body of the request cannot set a deadline.
func (x *exchange) releaseDeadlines() {
	x.resp.pace.writes.Release()
	if body := x.resp.pace.body; body != nil {
		body.reads.Release()
	}
}
